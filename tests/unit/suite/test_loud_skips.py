"""Tests that a machine cannot run are one loud line for each reason, and failures in CI."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import loud_skips
import pytest

from rekindle.model.errors import InputError
from testbed import test_programs

NO_GO = InputError(where="go", what="is not installed", remedy="install Go")


class Terminal:
    """What a reporter has: the reports of skipped tests, and the lines that were written."""

    def __init__(self, *reasons: str) -> None:
        skipped = [SimpleNamespace(longrepr=("file.py", 1, f"Skipped: {text}")) for text in reasons]
        self.stats = {"skipped": [*skipped, SimpleNamespace(longrepr="a string")]}
        self.lines: list[str] = []

    def write_line(self, line: str, **_: bool) -> None:
        self.lines.append(line)


def test_what_a_machine_lacks_is_skipped_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^NOT TESTED: go: is not installed; install"):
        loud_skips.skip(NO_GO)


def test_what_a_machine_lacks_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"^NO NODES: no root$"):
        loud_skips.skip("no root", "NO NODES")


def test_each_reason_is_one_line_with_the_number_of_its_tests() -> None:
    terminal: Any = Terminal("NOT TESTED: no root", "needs a JDK", "NO NODES: no cgroups")
    terminal.stats["skipped"] += terminal.stats["skipped"][:1]
    loud_skips.report(terminal)
    assert terminal.lines == [
        "NO NODES: no cgroups",
        "NOT TESTED: no root (2 tests)",
        "needs a JDK",
    ]


def session() -> Any:
    """What `keep` needs of a session."""
    manager = SimpleNamespace(getplugin=lambda _: None)
    return SimpleNamespace(config=SimpleNamespace(pluginmanager=manager, stash={}))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (NO_GO, "NOTHING: go: is not installed; install Go"),
        (OSError(28, "No space left on device", "cache"), "NOTHING: cache: No space left on dev"),
    ],
)
def test_programs_that_cannot_be_had_skip_the_tests_that_ask_for_them(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> Any:
        raise error

    monkeypatch.delenv("CI", raising=False)
    running = session()
    loud_skips.keep(running, "NOTHING", fail)
    with pytest.raises(pytest.skip.Exception, match=f"^{line}"):
        loud_skips.programs(running, "NOTHING")


def test_programs_are_kept_for_the_tests_that_ask_for_them() -> None:
    running = session()
    for loud, name in (("NO CHART", test_programs.HELM), ("NO STORE", test_programs.VERSITYGW)):
        found = {name: Path(name)}
        loud_skips.keep(running, loud, lambda _, found=found: found)
    assert loud_skips.programs(running, "NO CHART") == {
        test_programs.HELM: Path(test_programs.HELM)
    }
    assert loud_skips.programs(running, "NO STORE") == {test_programs.VERSITYGW: Path("versitygw")}
