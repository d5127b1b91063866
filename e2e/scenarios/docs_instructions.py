r"""A page of instructions as a program: its blocks of shell commands, and what they print.

    ```sh        commands, run one block after the other in one shell
    ```text      lines that the commands before it print, in this order; `...` stands for others

A block after a line `<!-- yours -->` says what is the reader's own, and somebody else's commands
take its place. All else is prose. Pure; `quickstart_scenario` runs it.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import InputError

FENCE = re.compile(r"^```(\w*)$")
YOURS = re.compile(r"^<!-- yours\b.*-->$")
# A length of time has as many words as it takes: 45 s, 2 min 3 s.
LENGTH = re.compile(r"\b\d+(\.\d+)? (h|min|s)\b( \d+ (min|s)\b)*")
# A name or a number of which the next run has another one.
OTHER = re.compile(r"\S*\d\S*")
NOT_SHOWN = ("", "...")


@dataclass(frozen=True, slots=True)
class Block:
    """Commands from the line after `line` on, counted from 1, and what the page shows of them."""

    line: int
    commands: tuple[str, ...]
    is_yours: bool = False
    shown: tuple[str, ...] = ()


def blocks(page: str, name: str) -> list[Block]:
    """The blocks of a page of this name.

    Raises `InputError` for one that does not end, or shows what nothing prints.
    """
    found: list[Block] = []
    for line, kind, content, before in _fenced(page.splitlines(), name):
        if kind == "sh":
            found.append(Block(line, content, is_yours=YOURS.match(before) is not None))
        elif kind == "text":
            if not found or found[-1].shown:
                raise _bad(name, line, "shows what no commands before it print")
            found[-1] = Block(found[-1].line, found[-1].commands, found[-1].is_yours, content)
    return found


def script(given: Sequence[Block], yours: Sequence[str], folder: Path) -> str:
    """A program for bash in which each command has the number of its line on the page.

    Each block prints to its `log` in a folder. `yours` takes the place of the reader's own.
    """
    text = [""] * (given[-1].line + len(given[-1].commands))
    for block in given:
        commands = _own(block, yours) if block.is_yours else block.commands
        text[block.line - 1] = f"exec > {shlex.quote(str(log(folder, block)))} 2>&1"
        text[block.line : block.line + len(commands)] = commands
    return "\n".join(text) + "\n"


def log(folder: Path, block: Block) -> Path:
    """Where a block prints to."""
    return folder / f"line-{block.line}.log"


def unprinted(block: Block, printed: str) -> str | None:
    """The first line of what the page shows that was not printed; numbers and names may differ."""
    rest = iter([_shape(line) for line in printed.splitlines()])
    shown = (line for line in block.shown if _shape(line) not in NOT_SHOWN)
    return next((line for line in shown if _shape(line) not in rest), None)


def _fenced(lines: Sequence[str], name: str) -> Iterator[tuple[int, str, tuple[str, ...], str]]:
    """Line, kind and content of each fenced block, and the last line before it that has words."""
    at, before = 0, ""
    while at < len(lines):
        opening = FENCE.match(lines[at])
        if opening:
            end = next((n for n in range(at + 1, len(lines)) if lines[n] == "```"), None)
            if end is None:
                raise _bad(name, at + 1, "begins a block that does not end")
            yield at + 1, opening[1], tuple(lines[at + 1 : end]), before
            at = end
        before = lines[at] or before
        at += 1


def _own(block: Block, yours: Sequence[str]) -> tuple[str, ...]:
    """As many lines as the page has, so that those below keep their numbers."""
    if len(yours) > len(block.commands):
        raise _bad("the page", block.line, f"has {len(block.commands)} lines, {len(yours)} of ours")
    return (*yours, *("" for _ in range(len(block.commands) - len(yours))))


def _shape(line: str) -> str:
    """A line without what is different each time."""
    return " ".join(OTHER.sub("0", LENGTH.sub("0", line)).split())


def _bad(name: str, line: int, what: str) -> InputError:
    return InputError(where=f"{name}:{line}", what=what, remedy="mend the page")
