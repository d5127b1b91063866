"""`rekindle check-history FILE`: whether the output of a recorded history could be right.

Reads the file, shows that it is at work, and prints; `rekindle.history` judges.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from rekindle import history
from rekindle.history import HistoryVerdict
from rekindle.model.errors import InputError

STEPS_SHOWN_MAX = 40
WORDS = {True: "yes", False: "no", None: "undecided: too many races for the bound on the search"}


def check_history(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines, docs/history.md.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Tell whether recorded output is consistent, exactly once and deterministic.

    Ends with 1, and the shortest history that shows it, when it is not consistent or not exactly
    once.

    Example: rekindle check-history out/history.jsonl
    """
    with Console(stderr=True).status(escape(f"checking {file}")):
        verdict = history.check(history.parse(_content(file), file.name), file.name)
    record = history.to_record(verdict)
    as_text = json.dumps(record, indent=2, ensure_ascii=False)
    typer.echo(as_text if as_json else _told(verdict, record))
    if not verdict.holds:
        raise typer.Exit(1)


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "is no UTF-8"
        raise InputError(
            where=str(file),
            what=f"cannot be read ({what})",
            remedy="name a readable history as in docs/history.md",
        ) from error


def _told(verdict: HistoryVerdict, record: dict[str, Any]) -> str:
    counts = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in verdict.counts.items())
    lines = [
        f"steps            {counts}",
        f"consistent       {WORDS[verdict.consistent]} (Definition 5)",
        f"exactly once     {_once(verdict)} (Definition 6)",
    ]
    if not verdict.exactly_once:
        lines += [
            f"at least once    {WORDS[verdict.at_least_once]} (Definition 8)",
            f"at most once     {WORDS[verdict.at_most_once]} (Definition 7)",
        ]
    lines += [
        f"deterministic    {WORDS[verdict.deterministic]} (Definition 10)",
        f"non-commutative  {_non_commutative(verdict)} (Definition 9)",
    ]
    if verdict.race is not None:
        lines += ["", verdict.race.sentence, *_steps(record["race"]["steps"])]
    if verdict.witness is not None:
        lines += ["", verdict.witness.sentence, *filter(None, [verdict.witness.because])]
        size = "The smallest" if verdict.witness.smallest else "A smaller"
        lines += [
            f"{size} history that shows it (up to line {verdict.witness.line} of the file):",
            *_steps(record["witness"]["steps"]),
        ]
    return "\n".join(lines)


def _once(verdict: HistoryVerdict) -> str:
    so_far = verdict.exactly_once and not verdict.ended
    return f"{WORDS[verdict.exactly_once]}{', so far: it has no end' if so_far else ''}"


def _non_commutative(verdict: HistoryVerdict) -> str:
    if verdict.non_commutative is None:
        return "not known: the operations are opaque"
    return ", ".join(verdict.non_commutative) or "none"


def _steps(steps: list[dict[str, Any]]) -> list[str]:
    shown = [f"  {json.dumps(step, ensure_ascii=False)}" for step in steps[-STEPS_SHOWN_MAX:]]
    left = len(steps) - len(shown)
    return [*([f"  ({left} steps before these: --json shows all)"] if left else []), *shown]
