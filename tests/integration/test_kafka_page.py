"""The page for the first pipeline on Kafka: its commands work as they stand, on a real broker."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import broker

from rekindle_local import process_sets

PAGE = Path(__file__).parents[2] / "docs" / "kafka-in-ten-minutes.md"
FILES = re.compile(r"`(\w+\.py)`[^`]*?:\n\n```python\n(.*?)```", re.DOTALL)
# Lines that are indented by four are commands; a block behind them is what the last one prints.
COMMANDS = re.compile(r"^    (\S[^\n]*)\n(?:\n```\n(.*?)```\n)?", re.MULTILINE | re.DOTALL)
LIMIT_SECONDS = 300.0
NODES, KILLED = 4, 2
ASKED_FOR = re.compile(r"(\d+) nodes? (?:is|are) asked for")
# These go on while the next commands are typed in another terminal.
LASTING = ("python -m rekindle_local.kafka_broker", "rekindle run")


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def commands() -> Iterator[tuple[str, str]]:
    """The commands of the page, with what each prints, as far as the page shows it."""
    without_files = re.sub(r"```python\n.*?```\n", "", text(), flags=re.DOTALL)
    yield from COMMANDS.findall(without_files)


@dataclass
class Terminal:
    """A shell in a folder; what goes on is ended with `stack`."""

    folder: Path
    stack: ExitStack
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def __post_init__(self) -> None:
        programs = self.folder / "bin"
        programs.mkdir()
        for name, arguments in (("python", ""), ("rekindle", "-m rekindle_cli ")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n')
            program.chmod(0o755)
        self.environment["PATH"] = f"{programs}:{self.environment['PATH']}"
        self.environment["PYTHONPATH"] = os.pathsep.join(sys.path)

    def run(self, command: str) -> str:
        """What a command prints; the exit code must be 0."""
        ended = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start a command that goes on."""
        with (self.folder / "errors").open("a") as errors:
            started = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE if "kafka_broker" in command else errors,
                stderr=errors,
                text=True,
            )

        def end() -> None:
            started.send_signal(signal.SIGINT)
            try:
                started.wait(LIMIT_SECONDS)
            finally:
                started.kill()

        self.stack.callback(end)
        return started

    def obey(self, line: str) -> None:
        """Set a variable as a command says."""
        found = re.fullmatch(r"export (\w+)=(\S+)\n", line)
        assert found is not None, self.errors()
        self.environment[found[1]] = found[2]

    def errors(self) -> str:
        return (self.folder / "errors").read_text()


def await_return(terminal: Terminal, run: subprocess.Popen[str]) -> None:
    """Wait until the nodes that were killed are back, and all queries."""
    there = f"running: {NODES} of {NODES} nodes"

    def are_back() -> bool:
        assert run.poll() is None, terminal.errors()
        said = terminal.errors()
        asked = [*ASKED_FOR.finditer(said)]  # the losses may be noticed one after the other
        is_asked = sum(int(one[1]) for one in asked) >= KILLED
        return is_asked and there in said[asked[-1].end() :]

    assert process_sets.await_condition(are_back, limit_seconds=LIMIT_SECONDS), terminal.errors()


def test_the_commands_of_the_page_work_as_they_stand(tmp_path: Path) -> None:
    broker.jars()  # skips without them
    for name, content in FILES.findall(text()):
        (tmp_path / name).write_text(content)
    assert {path.name for path in tmp_path.glob("*.py")} == {
        "orders_topic.py",
        "orders.py",
        "counts.py",
    }
    ran = 0
    with ExitStack() as stack:
        terminal = Terminal(tmp_path, stack)
        lasting: subprocess.Popen[str] | None = None
        for command, shown in commands():
            ran += 1
            if command.startswith(LASTING):
                lasting = terminal.start(command)
                if lasting.stdout is not None:
                    terminal.obey(lasting.stdout.readline())
                continue
            assert lasting is not None
            is_end = command.startswith("touch")
            if is_end:
                await_return(terminal, lasting)
            said = terminal.run(command)
            assert shown.strip() in said, f"{command} prints {said!r}"
            assert not is_end or lasting.wait(LIMIT_SECONDS) == 0, terminal.errors()
    assert ran == 6
