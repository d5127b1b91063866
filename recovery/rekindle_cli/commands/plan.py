"""`rekindle plan`: one problem file in, one plan out.

Reads the file, keeps the clock and prints; what it prints is decided in `rekindle.planning`.
"""

import ctypes
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from rekindle import planning
from rekindle.model import plan_problem, strict_json
from rekindle.model.errors import InputError

PRINTED = "`rekindle plan --json` has printed"
OPTIONS = ("budget-seconds", "seed", "solver")
ROWS_MAX = 40
OTHER_COLUMNS = 60  # characters, with lines between: what stands beside ids in either table


def plan(
    problem_file: Annotated[
        Path, typer.Argument(metavar="PROBLEM.json", help="The problem, as in docs/planning.md.")
    ],
    solver: Annotated[
        str, typer.Option(help=f"One of {', '.join((planning.AUTO, *planning.SOLVERS))}.")
    ] = planning.AUTO,
    budget_seconds: Annotated[float, typer.Option(help="Seconds to look for a better plan.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the local search.")] = 0,
    start: Annotated[
        Path | None,
        typer.Option(
            metavar="ANSWER.json", help="The last plan, to go on from.", show_default="none"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Choose the queries to restore on the capacity that is there.

    Example: rekindle plan problem.json --budget-seconds 5 --json
    """
    content = _content(problem_file, "with a problem as in docs/planning.md")
    problem = plan_problem.parse(content, str(problem_file))
    last = None if start is None else _last_plan(start)
    with _named_as_options(), _quiet():
        answer = planning.solve(
            problem,
            clock=time.monotonic,
            solver=solver,
            budget_seconds=budget_seconds,
            seed=seed,
            start=last,
        )
    if as_json:
        print(json.dumps(plan_problem.answer_to_record(answer), indent=2))
        return
    _show(problem, answer)


def _content(file: Path, remedy: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(
            where=str(file),
            what=f"cannot be read ({error.strerror})",
            remedy=f"name a readable file {remedy}",
        ) from error


def _last_plan(answer_file: Path) -> plan_problem.Answer:
    """What an earlier run has printed."""
    content = _content(answer_file, f"with what {PRINTED}")
    record = strict_json.read(content, str(answer_file), f"give what {PRINTED}")
    return plan_problem.answer_from_record(record, str(answer_file))


@contextmanager
def _named_as_options() -> Iterator[None]:
    """What the planner refuses of its arguments, by the names of the options."""
    try:
        yield
    except InputError as error:
        if error.where not in OPTIONS:
            raise
        where = f"--{error.where}"
        raise InputError(where=where, what=error.what, remedy=error.remedy) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what HiGHS prints on the process's standard output out of ours.

    It prints from C++, past `sys.stdout` and past its own switch for messages, into a buffer of
    libc that has to be written out before the descriptor comes back.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _show(problem: plan_problem.Problem, answer: plan_problem.Answer) -> None:
    """A sentence and tables; ids are broken where a terminal is too narrow, and nowhere else."""
    console = Console(file=sys.stdout)
    whole = not console.is_terminal
    if whole:
        queries, nodes, partitions = (
            max(map(cell_len, names), default=0)
            for names in (problem.queries, answer.placement, problem.partitions)
        )
        console.width = max(console.width, OTHER_COLUMNS + max(queries, nodes + partitions))
    console.print(Text(plan_problem.describe(answer)))
    console.print(_queries(problem, answer, whole=whole))
    if answer.placement:
        console.print(_nodes(problem, answer, whole=whole))


def _queries(problem: plan_problem.Problem, answer: plan_problem.Answer, *, whole: bool) -> Table:
    """What comes back first, then what does not, each by priority."""
    table = Table(Column("query", overflow="fold", no_wrap=whole), "priority", "plan")
    order = sorted(
        problem.queries,
        key=lambda name: (name in answer.skipped, -problem.queries[name].priority, name),
    )
    for name in order[:ROWS_MAX]:
        priority = f"{problem.queries[name].priority:g}"
        table.add_row(Text(name), priority, answer.skipped.get(name, "bring back"))
    _say_what_is_left_out(table, len(order))
    return table


def _nodes(problem: plan_problem.Problem, answer: plan_problem.Answer, *, whole: bool) -> Table:
    table = Table(
        Column("node", overflow="fold", no_wrap=whole),
        Column("partitions", overflow="fold"),
        "CPU %",
        "free CPU % before",
    )
    for node, held in list(answer.placement.items())[:ROWS_MAX]:
        used = sum(problem.partitions[partition].cpu_percent for partition in held)
        free = (problem.nodes or {})[node]
        table.add_row(Text(node), Text(", ".join(held)), f"{used:.6g}", f"{free:.6g}")
    _say_what_is_left_out(table, len(answer.placement))
    return table


def _say_what_is_left_out(table: Table, rows: int) -> None:
    if rows > ROWS_MAX:
        table.caption = f"{rows - ROWS_MAX} more; --json shows all"
