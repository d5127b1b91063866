"""Systems in the same failure: weighted unavailability as a ratio, seed by seed.

    of each seed   incremental ─its rate, its victims─► blocking, and the peers, in turn
                   a peer that does not sustain the rate ─► also half of it, half of that ...

The first run of a seed is calibrated to the same load, from the rate of the one before it; all that
come after it run at its rate. `recovery_runs` makes the records, `system_comparison` judges them;
beside `recovery.json`, which is there from the first run on, comes a picture of all lags. What was
interrupted goes on from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from rekindle.model.errors import RunError
from rekindle_bench import bar_results, contest_resume, lag_chart, recovery_runs, system_comparison
from rekindle_bench.contest_order import Contest, in_turn
from rekindle_bench.contest_resume import Earlier
from rekindle_bench.lag_chart import Curve
from rekindle_bench.recovery_runs import RecoveryRun
from rekindle_local import failure_schedule
from rekindle_local.demo.demo_scenario import DemoOptions
from rekindle_local.local_nodes import LocalNode
from rekindle_peers import peer_starters
from rekindle_peers.peer_scenario import PeerTrial
from rekindle_peers.peer_table import PEERS

# The rate with which the calibration of the first seed begins.
FIRST_ROWS_PER_SECOND = 30_000.0


@dataclass(slots=True)
class _Measuring:
    """The runs so far, and failures as `recovery.json` has them. `rekindle` is how its next run
    begins; `rate` and `victims` are those of the seed: as asked for and drawn, unless a run of
    Rekindle says otherwise. `sustained` is the highest rate that each peer has sustained."""

    contest: Contest
    directory: Path
    rekindle: DemoOptions
    found: list[RecoveryRun] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    rate: float | None = None
    victims: tuple[tuple[str, ...], ...] = ()
    sustained: dict[str, float] = field(default_factory=dict)

    def take(self, earlier: Earlier) -> None:
        """Take over what was done before."""
        for run in earlier.found:
            self._keep(run)
        self.failed += earlier.failed

    def tell_of_others(self) -> None:
        """Say which of these another version has measured than will measure those to come."""
        told = dict.fromkeys(
            f"{record['system']}, seed {record['seed']}: measured with version {version}"
            for record in (run.record for run in self.found)
            if (version := record.get("commit", "unknown")) != bar_results.COMMIT
        )
        for line in told:
            Console(highlight=False, soft_wrap=True).print(line)

    def begin(self, seed: int) -> None:
        """Know of this seed what its first run may need."""
        schedule = self.contest.schedule
        names = [LocalNode(index).name for index in range(schedule.nodes)]
        self.rate = self.contest.rows_per_second
        self.victims = failure_schedule.drawn(names, schedule.kills, seed)
        for run in self._of_seed(seed):
            self._heed(run)

    def is_done(self, system: str, seed: int) -> bool:
        """Whether nothing of this is left to run."""
        records = self._records(system, seed)
        if system not in PEERS:
            return bool(records)
        lowest = 0.5**recovery_runs.HALVINGS_MAX
        return any(one["sustained"] or one["share_of_rate"] == lowest for one in records)

    def run(self, system: str, seed: int) -> None:
        """Run a system; what goes wrong is kept, too, until it has run again."""
        failed = [one for one in self.failed if (one["system"], one["seed"]) != (system, seed)]
        try:
            if system in PEERS:
                self._run_peer(system, seed)
            else:
                self._run_rekindle(system, seed)
        except RunError as error:
            Console(highlight=False).print(str(error))
            failed.append({"system": system, "seed": seed, "error": str(error)})
        self.failed = failed

    def save(self) -> dict[str, Any]:
        """Write what the runs so far come to; returns it."""
        records = system_comparison.counted([run.record for run in self.found])
        self.found = [
            replace(run, record=record) for run, record in zip(self.found, records, strict=True)
        ]
        ratios = system_comparison.ratios(records)
        if self.contest.schedule.name != "demo":
            ratios.pop(f"{system_comparison.OURS}/bound", None)  # it reckons with one failure
        drawn = picture(self.found)
        if drawn is not None:
            (self.directory / "recovery.svg").write_text(drawn)
        seeds = sorted({*self.contest.seeds, *(record["seed"] for record in records)})
        command = replace(self.contest, seeds=seeds).command
        rows = system_comparison.bars(records, ratios, self.failed, command)
        figures = {
            **self.contest.header,
            "ratios": ratios,
            "runs": records,
            "failed": self.failed,
        }
        return bar_results.save(self.directory / contest_resume.FILE, figures, rows)

    def _run_rekindle(self, strategy: str, seed: int) -> None:
        wanted = replace(
            self.rekindle,
            strategy=strategy,
            seed=seed,
            rows_per_second=self.rate,
            # who runs at the rate of another has the load that comes of it
            judged=strategy == self.contest.leader,
        )
        run = recovery_runs.rekindle(wanted, self.directory)
        self._keep(run)
        self._heed(run)

    def _run_peer(self, system: str, seed: int) -> None:
        trial = self._trial(system, seed)
        for run in recovery_runs.peer(
            system, trial, self.directory, halvings=self._halvings(trial, system)
        ):
            self._keep(run)
            self.save()

    def _halvings(self, trial: PeerTrial, system: str) -> int:
        """To what the peer has sustained with an earlier seed, or behind what it has tried."""
        known = self.sustained.get(system)
        first = 0 if known is None else recovery_runs.halvings_to(trial.rows_per_second, known)
        shares = [one["share_of_rate"] for one in self._records(system, trial.seed)]
        tried = [1 + recovery_runs.halvings_to(1.0, share) for share in shares]
        return min(max([first, *tried]), recovery_runs.HALVINGS_MAX)

    def _of_seed(self, seed: int) -> list[RecoveryRun]:
        return [run for run in self.found if run.record["seed"] == seed]

    def _records(self, system: str, seed: int) -> list[dict[str, Any]]:
        return [run.record for run in self._of_seed(seed) if run.record["system"] == system]

    def _keep(self, run: RecoveryRun) -> None:
        """Enter a run, and what it says for later seeds."""
        self.found.append(run)
        record = run.record
        if record["system"] not in PEERS:
            self.rekindle = replace(self.rekindle, first_rows_per_second=record["rate"])
        elif record["sustained"]:
            before = self.sustained.get(record["system"], 0.0)
            self.sustained[record["system"]] = max(before, record["rate"])

    def _heed(self, run: RecoveryRun) -> None:
        """What a run says for the others of its seed."""
        if run.record["system"] in PEERS:
            return
        if self.rate is None:  # the first of a seed says it for all that come after it
            self.rate = run.record["rate"]
        if run.record["system"] == system_comparison.OURS and len(self.victims) == 1:
            self.victims = (run.victims,)

    def _trial(self, system: str, seed: int) -> PeerTrial:
        if self.rate is None:
            raise RunError(
                where=system,
                what="has no rate to run at: no run of Rekindle with this seed has told one",
                remedy="see why that failed",
            )
        schedule = self.contest.schedule
        return PeerTrial(
            self.rate,
            self.victims,
            nodes=schedule.nodes,
            cpu_quota=self.contest.cpu_quota,
            seed=seed,
            every_seconds=schedule.every_seconds,
        )


def measure(contest: Contest, directory: Path, *, resume: bool = False) -> dict[str, Any]:
    """Run every system with every seed; returns what `recovery.json` holds, which says after each
    run what the runs so far come to. With `resume` those in the one that is there are not run
    again; raises InputError where they are of another contest."""
    schedule = contest.schedule
    rekindle = DemoOptions(
        nodes=schedule.nodes,
        kill=schedule.kills[0],
        later_kills=schedule.kills[1:],
        kills_every_seconds=schedule.every_seconds,
        rows_per_second=contest.rows_per_second,
        first_rows_per_second=FIRST_ROWS_PER_SECOND,
        cpu_quota=contest.cpu_quota,
    )
    measuring = _Measuring(contest, directory, rekindle)
    if resume:
        earlier = contest_resume.read(directory, contest)
        if earlier.gone:
            gone = "; ".join(dict.fromkeys(earlier.gone))
            said = f"run again: {gone}; {contest_resume.keep(directory)} has them"
            Console(highlight=False, soft_wrap=True).print(said)
        measuring.take(earlier)
        measuring.tell_of_others()
    found = measuring.save()
    for turn, seed in enumerate(contest.seeds):
        measuring.begin(seed)
        for system in in_turn(contest.systems, turn):
            if not measuring.is_done(system, seed):
                Console(highlight=False).rule(f"{system}, seed {seed}")
                measuring.run(system, seed)
                found = measuring.save()
    bar_results.show(found)
    return found


def check(systems: Sequence[str]) -> None:
    """Raise InputError where something that one of them needs is not installed."""
    for system in systems:
        if system in PEERS:
            peer_starters.check(PEERS[system].contender)


def picture(found: Sequence[RecoveryRun]) -> str | None:
    """The lags of the runs that count, a line for each system: the median over its seeds; None
    where no run counts."""
    counted = [run for run in found if run.record["counted"] and run.curve]
    if not counted:
        return None
    systems = list(dict.fromkeys(run.record["system"] for run in counted))
    seeds = len({run.record["seed"] for run in counted})
    curves = [
        _curve(system, [run for run in counted if run.record["system"] == system])
        for system in systems
    ]
    # The failures of one seed stand for all: those of others are as far apart, to a few seconds.
    moments = [failure["at"] for failure in counted[0].record["failures"]]
    return lag_chart.draw(
        curves,
        moments,
        eyebrow=f"median of {seeds} seeds" if seeds > 1 else "one seed",
        headline="How far output is behind, mean over the queries by priority",
    )


def _curve(system: str, found: Sequence[RecoveryRun]) -> Curve:
    label = PEERS[system].label if system in PEERS else f"Rekindle, {system}"
    shares = {run.record["share_of_rate"] for run in found}
    if min(shares) < 1:
        told = {share: "all" if share == 1 else f"1/{1 / share:g}" for share in shares}
        low, high = told[min(shares)], told[max(shares)]
        label += f", {high if low == high else f'{low} to {high}'} of the rate"
    longest = max((run.curve for run in found), key=len)
    # a run that has ended owes nothing
    points = [
        (t, median([run.curve[n][1] if n < len(run.curve) else 0.0 for run in found]))
        for n, (t, _) in enumerate(longest)
    ]
    return Curve(label, points)
