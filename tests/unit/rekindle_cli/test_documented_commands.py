"""Pages: settings, events and commands in them are those that there are, with their defaults."""

import ast
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import typer

from rekindle.model.settings import Policy, RuntimeSettings
from rekindle_cli import command_line
from rekindle_spark.driver import priority_classes
from rekindle_spark.pipeline import program

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
WRITERS = (
    *(ROOT / "recovery/rekindle_spark").rglob("*.py"),
    *(ROOT / "recovery/rekindle/coordination").glob("*.py"),
)
EVENT_WRITERS = ("write", "RecordEvent", "_tell_switch")


def section(page: str, heading: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def table(text: str) -> list[list[str]]:
    """The cells of all rows but headings."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def shown(value: object) -> str:
    """A default as the page shows it."""
    if value is None or value is MISSING:
        return "none"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


@pytest.mark.parametrize(("heading", "kind"), [("policy", Policy), ("runtime", RuntimeSettings)])
def test_the_page_of_settings_has_each_with_its_default(heading: str, kind: type) -> None:
    told = {row[0].strip("`"): row[1] for row in table(section("settings.md", heading))}
    there = {one.name: shown(one.default) for one in fields(kind)}
    assert told == there


def constants(node: ast.expr) -> Iterator[str]:
    """The words that an expression may be, one of two for a choice."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if isinstance(node, ast.IfExp):
        yield from constants(node.body)
        yield from constants(node.orelse)


def written() -> Iterator[str]:
    """Kinds of events, where the code names them."""
    for path in WRITERS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            named = [word.value for word in node.keywords if word.arg == "kind"]
            if name in EVENT_WRITERS:
                for first in [*node.args[:1], *named]:
                    yield from constants(first)


def test_the_page_of_formats_has_each_kind_of_event() -> None:
    told = {
        kind
        for row in table(section("formats.md", "Events"))
        for kind in re.findall(r"`([a-z-]+)`", row[0])
    }
    found = set(written())
    assert {"cut", "node-suspected"} <= found
    assert found <= told, "not told"


COMMAND = re.compile(r"^    rekindle ((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind `rekindle` of each command of a page, as a shell would have them."""
    for text in COMMAND.findall(page.read_text(encoding="utf-8")):
        line = re.sub(r"\\\n\s*", "", text).partition("   ")[0].partition(" # ")[0]
        with suppress(ValueError):  # brackets and quotes of a grammar, not a command
            yield shlex.split(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_are_there_with_their_options(page: Path) -> None:
    for words in commands(page):
        command: Any = typer.main.get_command(command_line.application(words))
        named = iter(words)
        while hasattr(command, "commands"):
            name = next(named)
            assert name in command.commands, f"{page.name}: rekindle {' '.join(words)}"
            command = command.commands[name]
        there = {option for parameter in command.params for option in parameter.opts}
        there |= {option for parameter in command.params for option in parameter.secondary_opts}
        given = {word.partition("=")[0].strip("[],") for word in named if word.startswith("--")}
        assert given <= there | {"--help"}, f"{page.name}: rekindle {' '.join(words)}"


def test_the_pipeline_of_the_first_page_can_be_built() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    built = names["pipeline"]()
    sinks = {step.name: step.priority for step in built.steps.values() if step.kind == "sink"}
    assert sinks == {"failures": 10, "traffic": 2}
    assert program.build(built).sources


SLOTS = re.compile(r"--cores (\d+)|spark\.executor\.cores\W{1,3}(\d+)|\n +cores: (\d+)")


@pytest.mark.parametrize(
    "page",
    [
        "docs/pipelines.md",
        "docs/standalone.md",
        "examples/kubernetes/apache.yaml",
        "examples/kubernetes/kubeflow.yaml",
        "examples/kubernetes/spark-submit.sh",
    ],
)
def test_whoever_says_how_many_task_slots_an_executor_has_names_enough_for_all(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    if page.endswith("kubeflow.yaml"):
        text = text.split("\n  executor:\n", 1)[1]
    told = {number for found in SLOTS.findall(text) for number in found if number}
    assert told == {str(priority_classes.SLOTS_MIN)}
