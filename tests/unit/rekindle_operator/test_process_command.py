"""The command lines of operator, webhook and gate release: their help, and wrong usage."""

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

from rekindle_operator.controller import operator_main
from rekindle_operator.gates import gate_release
from rekindle_operator.webhook import webhook_main

OPERATOR, WEBHOOK = "rekindle-operator", "rekindle-webhook"
RELEASE = "rekindle-release-gates"
MODULES: dict[str, ModuleType] = {
    OPERATOR: operator_main,
    WEBHOOK: webhook_main,
    RELEASE: gate_release,
}
NO_OPTION = "{0}: no such option: --nope; see `{0} --help`"
NO_STORE = "missing option '--store' (env var: 'REKINDLE_STORE'); see"


def start(monkeypatch: pytest.MonkeyPatch, command: str, *arguments: str) -> int | str | None:
    """Call the command with these arguments; returns its exit code."""
    monkeypatch.setattr("sys.argv", [command, *arguments])
    with pytest.raises(SystemExit) as ended:
        MODULES[command].main()
    return ended.value.code


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (OPERATOR, ["--nope"], NO_OPTION.format(OPERATOR)),
        (OPERATOR, [], NO_STORE),
        (OPERATOR, ["--store", "zk:99999"], "'zk:99999' is no server"),
        (WEBHOOK, ["--nope"], NO_OPTION.format(WEBHOOK)),
        (WEBHOOK, [], NO_STORE),
        (WEBHOOK, ["--store", "zk"], "'zk': is no address of a server"),
        (
            WEBHOOK,
            ["--store", "zk:1", "--log", "/nonexistent/x"],
            "--log /nonexistent/x: cannot be written",
        ),
        (
            WEBHOOK,
            ["--store", "zk:1", "--kubeconfig", "/nonexistent"],
            "--kubeconfig /nonexistent: ",
        ),
        (RELEASE, ["--nope"], NO_OPTION.format(RELEASE)),
        (RELEASE, ["--timeout-seconds", "0"], "--timeout-seconds"),
        (RELEASE, ["--kubeconfig", "/nonexistent"], "--kubeconfig /nonexistent: "),
    ],
)
def test_wrong_usage_is_told_in_one_line(
    command: str,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("REKINDLE_STORE", raising=False)
    assert start(monkeypatch, command, *arguments) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "function"),
    [
        (OPERATOR, operator_main.operate),
        (WEBHOOK, webhook_main.serve),
        (RELEASE, gate_release.release_gates),
    ],
    ids=[OPERATOR, WEBHOOK, RELEASE],
)
def test_the_help_shows_every_option_whole(
    command: str,
    function: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert start(monkeypatch, command, "--help") == 0
    shown = capsys.readouterr().out
    for option in inspect.signature(function).parameters:
        assert f"--{option.replace('_', '-')} " in shown
