"""Ctrl-C: no moment at which it is lost, or leaves a trace."""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rekindle import interrupts

ROOT = Path(__file__).parents[3]
# Interrupts a loop of imports at 50 moments. Without a guard some interruptions are lost in the
# callback that frees a module's lock, and some leave the lock of all imports taken. It ends by
# `sys.exit`, as commands do: a script in which code of `eval` was interrupted kills itself.
IMPORTS = """
import _imp, importlib, signal, sys, threading, time
from rekindle import interrupts

LOOP_SECONDS_MAX = 5.0
main = threading.main_thread().ident

def is_interrupted(delay_seconds):
    until = time.monotonic() + LOOP_SECONDS_MAX
    sender = threading.Timer(delay_seconds, signal.pthread_kill, (main, signal.SIGINT))
    try:
        with interrupts.raised():
            sender.start()
            while time.monotonic() < until:
                for name in ("colorsys", "sched"):
                    sys.modules.pop(name, None)
                    importlib.import_module(name)
    except KeyboardInterrupt:
        return True
    return False

lost = [delay for delay in range(50) if not is_interrupted(delay / 5_000)]
print(len(lost), _imp.lock_held())
sys.exit()
"""
# An object whose finalizer is interrupted: an error in it can be caught by nobody.
FINALIZER = """
import signal, sys
from rekindle import interrupts

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

interrupts.end_at_once()
try:
    with interrupts.raised():
        Finalized()
        while True:
            pass
except KeyboardInterrupt:
    sys.exit(7)
"""
# The same in a function of the import system, which must come to its end.
LOCK_TAKEN = """
import signal, sys
from rekindle import interrupts

taken = []
body = "taken.append(1); signal.raise_signal(signal.SIGINT); taken.clear()"
function = compile(body, interrupts.IMPORT_SYSTEM + "._bootstrap>", "exec")
try:
    with interrupts.raised():
        exec(function)
        while True:
            pass
except KeyboardInterrupt:
    sys.exit(len(taken) or 7)
"""
AT_ONCE = """
import signal
from rekindle import interrupts
interrupts.end_at_once()
with interrupts.raised():
    pass
try:
    signal.raise_signal(signal.SIGINT)
finally:
    print("goes on")
"""
IGNORED = """
import signal
from rekindle import interrupts
signal.signal(signal.SIGINT, signal.SIG_IGN)
interrupts.end_at_once()
with interrupts.raised():
    signal.raise_signal(signal.SIGINT)
print("goes on")
"""
# A signal comes while a console script imports.
SCRIPT = """
import importlib, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{late}":
            signal.raise_signal({number})

sys.meta_path.insert(0, Interrupting())
sys.argv = ["a-script"]
main = getattr(importlib.import_module("{module}"), "{function}")
sys.exit(main())
"""
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
# What each of them imports late.
LATE = {name: "asyncio" if name == "rekindle-sidecar" else "typer" for name in SCRIPTS}
SERVERS = {"rekindle-operator", "rekindle-release-gates", "rekindle-webhook", "rekindle-sidecar"}
# Servers whose start calls a function `interrupted`.
STARTING = {
    "operator": "from rekindle_operator import process_command as one\n"
    "one.run('x', lambda: interrupted())",
    "sidecar": "from rekindle_sidecar import sidecar_main as one\n"
    "one._run = interrupted\none.main()",
}


def run(program: str) -> tuple[int, str, str]:
    """What a program ends with, and prints; a shell's background would have SIGINT ignored."""
    begin = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    ended = subprocess.run(
        [sys.executable, "-c", begin + program],
        env={"PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ("recovery", "operator"))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_an_interruption_of_imports_is_not_lost_and_leaves_no_lock() -> None:
    assert run(IMPORTS) == (0, "0 False\n", "")


def test_a_function_of_the_import_system_is_not_interrupted() -> None:
    assert run(LOCK_TAKEN) == (7, "", "")


def test_an_interruption_in_a_finalizer_comes_again() -> None:
    assert run(FINALIZER) == (7, "", "")


def test_before_and_after_a_command_the_process_ends_at_once() -> None:
    assert run(AT_ONCE) == (130, "", "")


def test_a_process_that_was_started_with_interruptions_ignored_ignores_them() -> None:
    assert run(IGNORED) == (0, "goes on\n", "")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_is_interrupted_while_it_imports_ends_without_a_word(name: str) -> None:
    module, function = SCRIPTS[name].split(":")
    program = SCRIPT.format(
        late=LATE[name], number=int(signal.SIGINT), module=module, function=function
    )
    assert run(program) == (130, "", "")


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_a_server_that_is_to_end_while_it_imports_does_not_wait_for_its_start(name: str) -> None:
    """As the first process of a container it would ignore the signal."""
    module, function = SCRIPTS[name].split(":")
    program = SCRIPT.format(
        late=LATE[name], number=int(signal.SIGTERM), module=module, function=function
    )
    assert run(program) == (143, "", "")


@pytest.mark.parametrize("server", STARTING)
def test_a_server_that_is_interrupted_before_it_serves_ends_without_a_word(server: str) -> None:
    begin = "import signal\ndef interrupted(*_): signal.raise_signal(signal.SIGINT)\n"
    assert run(begin + STARTING[server]) == (130, "", "")


def test_handlers_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", hook)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), interrupts.raised():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert sys.unraisablehook is hook
    finally:
        signal.signal(signal.SIGINT, before)
