"""The whole check of a report's directory: figures, output rows, plans.

Reads the directory through `evidence_files`, computes with `report`, and compares. Called by
`rekindle verify`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from rekindle import report
from rekindle.model import plan_problem as recovery_problem
from rekindle.model import run_events
from rekindle.model.errors import InputError, first_line
from rekindle.model.plan_problem import Answer, Problem
from rekindle.model.run_events import Event
from rekindle.report import availability
from rekindle.report.input_record import Inputs
from rekindle.verification import batch_check, evidence_files
from rekindle.verification.batch_check import RowDifferences
from rekindle.verification.evidence_files import REMEDY, Evidence, output_file

# Differences between the figures that a report gives and those computed again: `differences`, and
# `table` to show them.

RELATIVE_TOLERANCE = 1e-6
# Times are kept in microseconds: below that, zero and almost zero are the same.
ABSOLUTE_TOLERANCE = 1e-6
ROWS_SHOWN_MAX = 40
# Figures that reports of earlier releases do not have, by their names.
LATER_FIGURES = frozenset({"machine_limit", "skipped", "why"})


@dataclass(frozen=True, slots=True)
class Difference:
    """At `where` the report or record says `reported`, the check found `computed`."""

    where: str
    reported: str
    computed: str


def differences(reported: Any, computed: Any, where: str = "") -> list[Difference]:
    """Compare two JSON values; numbers are equal within 1e-6 relative.

    Fields that only `reported` has are left alone, a newer release may have added them; so are
    those that it cannot have because its release is older.
    """
    if isinstance(reported, Mapping) and isinstance(computed, Mapping):
        return [
            difference
            for name in computed
            for difference in _field(reported, computed, name, f"{where}.{name}".lstrip("."))
        ]
    if _is_list(reported) and _is_list(computed) and len(reported) == len(computed):
        return [
            difference
            for n, (before, after) in enumerate(zip(reported, computed, strict=True))
            for difference in differences(before, after, f"{where}[{n}]")
        ]
    if _equal(reported, computed):
        return []
    return [Difference(where, _shown(reported), _shown(computed))]


def table(found: Iterable[Difference]) -> str:
    """Lay differences out in three columns, the first 40 of them."""
    rows = [(difference.where, difference.reported, difference.computed) for difference in found]
    shown = [("figure", "reported", "computed"), *rows[:ROWS_SHOWN_MAX]]
    widths = [max(len(row[column]) for row in shown) for column in range(3)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
    if len(rows) > ROWS_SHOWN_MAX:
        lines.append(f"and {len(rows) - ROWS_SHOWN_MAX} more")
    return "\n".join(lines)


def _field(
    reported: Mapping[str, Any], computed: Mapping[str, Any], name: str, where: str
) -> list[Difference]:
    if name not in reported and name in LATER_FIGURES:
        return []
    if name not in reported:
        return [Difference(where, "missing", _shown(computed[name]))]
    found = differences(reported[name], computed[name], where)
    if name == "queries" and isinstance(reported[name], Mapping):
        surplus = sorted(set(reported[name]) - set(computed[name]))
        found += [Difference(f"{where}.{query}", "a query", "no such query") for query in surplus]
    return found


def _equal(reported: Any, computed: Any) -> bool:
    if _is_number(reported) and _is_number(computed):
        return math.isclose(
            reported, computed, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE
        )
    return type(reported) is type(computed) and bool(reported == computed)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# Checks each plan against its problem: its promises must follow from its input. Trusts no field
# of an answer that can be counted again.

# Sums of CPU percent, added in another order than the planner's.
TOLERANCE_CPU_PERCENT = 1e-6

Record = Mapping[str, Any]


def check_plans(
    events: Sequence[Event], problems: Mapping[int, Record], answers: Mapping[int, Record]
) -> list[Difference]:
    """Give what is wrong with any plan; InputError for records that are no problem or answer."""
    found = [
        Difference(f"problems/{number}.json", "a problem", f"no answers/{number}.json")
        for number in sorted(set(problems) - set(answers))
    ]
    found += [
        Difference(f"answers/{number}.json", "an answer", f"no problems/{number}.json")
        for number in sorted(set(answers) - set(problems))
    ]
    for number in sorted(set(problems) & set(answers)):
        problem = recovery_problem.from_record(problems[number], f"problems/{number}.json")
        where = f"answers/{number}.json"
        answer = recovery_problem.answer_from_record(answers[number], where)
        found += _pair(problem, answer, where)
        found += _announced(events, number, answer, where)
    return found


def _pair(problem: Problem, answer: Answer, where: str) -> list[Difference]:
    unknown = sorted(set(answer.queries) - set(problem.queries))
    placed = {name for held in answer.placement.values() for name in held}
    unknown += sorted({*answer.partitions, *placed} - set(problem.partitions))
    if unknown:
        return [Difference(where, f"plans {unknown[0]}", "the problem does not have it")]
    used = sum(problem.partitions[name].cpu_percent for name in answer.partitions)
    priority_sum = sum(problem.queries[query].priority for query in answer.queries)
    return [
        *_closed(problem, answer, where),
        *differences(answer.priority_sum, priority_sum, f"{where}: priority_sum"),
        *differences(answer.used_cpu_percent, used, f"{where}: used_cpu_percent"),
        *differences(answer.gap, _gap(answer, priority_sum), f"{where}: gap"),
        *_capacity(problem, answer, used, where),
    ]


def _closed(problem: Problem, answer: Answer, where: str) -> list[Difference]:
    needed = problem.failed.intersection(
        name for query in answer.queries for name in problem.queries[query].partitions
    )
    found = [
        Difference(f"{where}: partitions", "without it", f"{name} is needed")
        for name in sorted(needed - set(answer.partitions))
    ]
    return found + [
        Difference(f"{where}: partitions", name, "runs already or serves no planned query")
        for name in sorted(set(answer.partitions) - needed)
    ]


def _gap(answer: Answer, priority_sum: float) -> float:
    bound = answer.upper_bound
    return (bound - priority_sum) / bound if bound > 0 else 0.0


def _capacity(problem: Problem, answer: Answer, used: float, where: str) -> list[Difference]:
    found = []
    if answer.upper_bound < answer.priority_sum and not math.isclose(
        answer.upper_bound, answer.priority_sum
    ):
        found.append(
            Difference(
                f"{where}: upper_bound", str(answer.upper_bound), f"at least {answer.priority_sum}"
            )
        )
    if problem.nodes is None:
        return found + _over(used, problem.capacity_cpu_percent or 0.0, f"{where}: capacity")
    placed = sorted(name for held in answer.placement.values() for name in held)
    if placed != sorted(answer.partitions):
        found.append(
            Difference(f"{where}: placement", f"{len(placed)} placed", "each partition once")
        )
    for node, held in answer.placement.items():
        cost = sum(problem.partitions[name].cpu_percent for name in held)
        found += _over(cost, problem.nodes.get(node, 0.0), f"{where}: placement.{node}")
    return found


def _over(used: float, capacity: float, where: str) -> list[Difference]:
    if used <= capacity + TOLERANCE_CPU_PERCENT:
        return []
    return [Difference(where, f"uses {used:.6g} %", f"free are {capacity:.6g} %")]


def _announced(
    events: Sequence[Event], number: int, answer: Answer, where: str
) -> list[Difference]:
    announced = [
        event for event in run_events.of_kind(events, "plan") if event.extra["n"] == number
    ]
    surplus = sorted(
        {query for event in announced for query in event.extra["queries"]} - set(answer.queries)
    )
    return [
        Difference(f"events.jsonl: plan {number}", f"brings back {query}", f"not in {where}")
        for query in surplus
    ]


# Checks output rows against the commit events of their query partition, and those for gaps.
#
# So a commit cannot be claimed before its rows were there, nor rows be there without a commit,
# nor a commit event be lost.

# Rows and events are stamped by two readings of one clock.
TOLERANCE_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit event: epochs from `first` to `last`, committed between `begin` and `end`.

    `end` is the event's own time; `begin` that of the event before it, for the runtime tells of
    a commit before it starts on the next one of the same query partition.
    """

    first: int
    last: int
    begin: float
    end: float


def check_commits(directory: Path, events: Sequence[Event], inputs: Inputs) -> list[Difference]:
    """Give a difference for whatever rows and commit events do not tell of each other."""
    found = []
    for query in sorted(inputs.priorities):
        cuts, final = _cuts(events, query), availability.final_epoch(events, query)
        for partition in inputs.partitions(query):
            commits = _commits(events, partition)
            rows = _rows(directory, partition)
            found += _gaps(partition, commits, _restore_points(events, cuts), final)
            found += _uncovered(partition, rows, commits, cuts)
    return found


def _cuts(events: Sequence[Event], query: str) -> Mapping[int, float]:
    return {
        event.epoch: event.t
        for event in run_events.of_kind(events, "cut")
        if event.query in (None, query) and event.epoch is not None
    }


def _restore_points(events: Sequence[Event], cuts: Mapping[int, float]) -> set[int]:
    """The epochs after which a partition may go on: before all input, and the checkpoints."""
    checkpoints = {event.epoch for event in run_events.of_kind(events, "checkpoint")}
    return {min(cuts, default=1) - 1} | {epoch for epoch in checkpoints if epoch is not None}


def _commits(events: Sequence[Event], partition: str) -> list[_Commit]:
    commits: list[_Commit] = []
    for event in run_events.of_kind(events, "commit"):
        if event.query_partition == partition and event.epoch is not None:
            first = event.extra.get("from_epoch")
            if not isinstance(first, int):
                raise InputError(
                    where=f"events.jsonl: commit of {partition} at {event.t:.6f}",
                    what=f"has {first!r} as from_epoch, not a whole number",
                    remedy=REMEDY,
                )
            before = commits[-1].end if commits else -math.inf
            commits.append(_Commit(first, event.epoch, before, event.t))
    return commits


def _gaps(
    partition: str, commits: Iterable[_Commit], restore_points: set[int], final: int | None
) -> list[Difference]:
    """Each commit goes on where the one before ended, or from a restore point before that."""
    where, found = f"events.jsonl: commits of {partition}", []
    position = min(restore_points)
    for commit in commits:
        before = commit.first - 1
        if before != position and not (before < position and before in restore_points):
            found.append(
                Difference(
                    where,
                    f"epochs {commit.first} to {commit.last} follow {position}",
                    "a commit event between them is missing",
                )
            )
        position = commit.last
    if final is not None and position < final:
        found.append(Difference(where, f"end with epoch {position}", f"the run with {final}"))
    return found


def _uncovered(
    partition: str,
    rows: Iterable[tuple[int, float]],
    commits: Sequence[_Commit],
    cuts: Mapping[int, float],
) -> list[Difference]:
    """The first commit of an epoch is the one of its rows: a repeat commits nothing again."""
    found = []
    for epoch, at in rows:
        where = f"outputs/{partition}.parquet: epoch {epoch}"
        commit = next((each for each in commits if each.first <= epoch <= each.last), None)
        cut = cuts.get(epoch, -math.inf)
        if commit is None:
            found.append(Difference(where, "has rows", "no commit event covers it"))
        elif not commit.begin - TOLERANCE_SECONDS <= at <= commit.end + TOLERANCE_SECONDS:
            said = f"its commit event is at {commit.end:.6f}"
            found.append(Difference(where, f"committed at {at:.6f}", said))
        elif at < cut - TOLERANCE_SECONDS:
            found.append(Difference(where, f"committed at {at:.6f}", f"cut at {cut:.6f}"))
    return found


def _rows(directory: Path, partition: str) -> list[tuple[int, float]]:
    """Each epoch with rows, and the commit time that they carry."""
    try:
        rows = (
            pl.scan_parquet(output_file(directory, partition), glob=False, hive_partitioning=False)
            .select(
                pl.col("epoch").cast(pl.Int64).fill_null(-1),
                pl.col("committed_at").cast(pl.Float64).fill_null(math.nan),
            )
            .unique()
            .sort("epoch", "committed_at")
            .collect()
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            where=f"outputs/{partition}.parquet",
            what=f"cannot be read ({first_line(error)})",
            remedy=REMEDY,
        ) from error
    return list(rows.iter_rows())


def verify(
    directory: Path, clock: Callable[[], float], say: Callable[[str], None] = lambda _: None
) -> tuple[Difference, ...]:
    """Compute everything in `report.json` again; give what differs, nothing when all is right.

    `clock` is a monotonic one, for the solver's budget; `say` is told what is being checked.
    Also differences: a row that is missing, duplicated or wrong even where the report admits
    it, output that belongs to no query, rows that their commit event does not cover, and plans
    that break their problem's limits. InputError names a file that is missing or ill-formed.
    """
    say("reading the records of the run")
    evidence = evidence_files.read(directory)
    compared = batch_check.compare(directory, evidence.inputs, evidence.sql, say)
    say("computing the figures of the report")
    computed = report.compute(
        evidence.events,
        report.RunFacts.from_record(evidence.report),
        evidence.input_record,
        evidence.problems,
        evidence.answers,
        batch_check.totals(compared),
        clock,
    )
    say("checking commits and plans")
    return (
        *differences(evidence.report, computed),
        *_bad_rows(compared),
        *_foreign(evidence),
        *check_commits(directory, evidence.events, evidence.inputs),
        *check_plans(evidence.events, evidence.problems, evidence.answers),
    )


def _bad_rows(compared: Sequence[RowDifferences]) -> list[Difference]:
    return [
        Difference(
            f"outputs/{rows.query}: {kind} rows",
            "0 (the promise)",
            f"{rows.counts[kind]}, such as {sample}",
        )
        for rows in compared
        for kind, sample in rows.samples.items()
    ]


def _foreign(evidence: Evidence) -> list[Difference]:
    return [
        Difference(name, "is there", "no query partition of the run")
        for name in evidence_files.foreign_outputs(evidence.directory, evidence.inputs)
    ]
