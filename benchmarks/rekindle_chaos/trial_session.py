"""Runs trials one after the other on one cluster; one that fails again with fewer faults.

chaos.json      what all came to, written after each trial
seed-N/         what a trial that failed has left
seed-N.json     its shortest form that still fails, to be run again
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rekindle.model.errors import RunError
from rekindle_chaos import fault_shrinking, trial_results, trial_run, trials
from rekindle_chaos.sabotage import Sabotage
from rekindle_chaos.trial_run import TrialMachines, TrialVerdict
from rekindle_chaos.trials import ChaosTrial, Fault
from rekindle_local.demo import demo_evidence

SHRINKING_RUNS_MAX = 8


@dataclass(slots=True)
class Session:
    """What one call of the command runs, in an empty directory."""

    directory: Path
    sabotage: Sabotage | None
    say: Callable[[str], None]
    verdicts: list[TrialVerdict] = field(default_factory=list)

    def run(self, wanted: Sequence[ChaosTrial]) -> None:
        """Raises RunError where a trial fails, or where a sabotage is not found in any. After one
        that has failed an interrupted session ends with it: what that has left is to be kept."""
        try:
            self._run(wanted)
        except KeyboardInterrupt:
            if self.sabotage is None and any(verdict.failure for verdict in self.verdicts):
                self._judge()
            raise

    def _run(self, wanted: Sequence[ChaosTrial]) -> None:
        nodes = max(trial.nodes for trial in wanted)
        links = any(trial.has_links for trial in wanted)
        folder = self.directory / "cluster"
        with trial_run.machines(nodes, folder, self.sabotage, links=links) as machines:
            for trial in wanted:
                verdict = self._try(machines, trial, f"seed-{trial.seed}")
                self.verdicts.append(verdict)
                self.say(trial_results.line(verdict))
                self._write()
                if verdict.failure and self.sabotage is None:
                    self._shrink(machines, verdict)
                elif verdict.failure:
                    self.say(f"seed {trial.seed} finds {self.sabotage}")
                    return
        self._judge()

    def _try(self, machines: TrialMachines, trial: ChaosTrial, name: str) -> TrialVerdict:
        """Run a trial; what it leaves is kept where it fails."""
        directory = self.directory / name
        directory.mkdir()
        verdict = trial_run.run(trial, machines, directory)
        if not verdict.failure:
            shutil.rmtree(directory)
        return verdict

    def _shrink(self, machines: TrialMachines, verdict: TrialVerdict) -> None:
        """Find the fewest faults that still fail, and keep the trial with them."""
        trial, tried = verdict.trial, 0

        def fails(faults: Sequence[Fault]) -> bool:
            nonlocal tried
            tried += 1
            shorter = msgspec.structs.replace(trial, faults=tuple(faults))
            again = self._try(machines, shorter, f"seed-{trial.seed}-{tried}")
            self.say(f"  again with {len(faults)} faults: {again.failure or 'all right'}")
            return bool(again.failure)

        left = fault_shrinking.shortest(trial.faults, fails, SHRINKING_RUNS_MAX)
        path = self.directory / f"seed-{trial.seed}.json"
        shortest = msgspec.structs.replace(trial, faults=tuple(left))
        path.write_text(trials.serialize(shortest))
        self.say(f"seed {trial.seed} fails with: {trial_results.schedule(left) or 'no fault'}")
        self.say(f"run it again: rekindle chaos --trial {path}")

    def _write(self) -> None:
        commit, machine = demo_evidence.commit(), demo_evidence.machine()
        content = trial_results.summary(self.verdicts, commit, machine, self.sabotage)
        (self.directory / "chaos.json").write_text(json.dumps(content, indent=1) + "\n")

    def _judge(self) -> None:
        failed = [verdict for verdict in self.verdicts if verdict.failure]
        if self.sabotage is not None:
            raise RunError(
                where=f"--break {self.sabotage}",
                what=f"was not found in {len(self.verdicts)} trials",
                remedy="give more seeds; if it is never found, a check is missing",
            )
        if failed:
            raise RunError(
                where=f"seed {failed[0].trial.seed}",
                what=failed[0].failure,
                remedy=f"see {self.directory}",
            )
