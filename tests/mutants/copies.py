"""A copy of a checkout in a temporary folder: files are changed there, and programs run on it.

A copy has the files that git tracks or would track, and the jars that `make setup` has built. Its
programs are the checkout's own Python with the copy's source roots first on the path, so that
subprocesses of tests use the copy too. Nothing of a copy is left when its context ends.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

SOURCE_ROOTS = ("recovery", "operator", "e2e", "benchmarks")
JARS = "**/jvm/*.jar"
# Tests that are interrupted end what they have started; after so many seconds they are killed.
INTERRUPTED_SECONDS = 40.0


class Ended(Exception):
    """The copy was told to end while a program ran."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended: `code` is None where it was killed because it took too long."""

    code: int | None
    output: str


@dataclass(slots=True)
class Copy:
    """A copy in `folder`. One program runs at a time; `end` may be called from another thread.

    `written_at` is when a file was last changed, in whole seconds. Each change has a moment of its
    own: Python tells an old bytecode file from a current one by that and the size alone.
    """

    folder: Path
    python: Path
    written_at: int = field(default_factory=lambda: int(time.time()))
    ending: bool = False
    running: subprocess.Popen[str] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def changed(self, file: str, old: str, new: str) -> Iterator[None]:
        """Inside, the one `old` of a file is `new`; the file and the jars are as before then."""
        path = self.folder / file
        kept = {path: path.read_bytes(), **{jar: jar.read_bytes() for jar in _jars(self.folder)}}
        self._write(path, kept[path].decode().replace(old, new).encode())
        try:
            yield
        finally:
            for place, content in kept.items():
                self._write(place, content)

    def _write(self, path: Path, content: bytes) -> None:
        self.written_at += 2
        path.write_bytes(content)
        os.utime(path, (self.written_at, self.written_at))

    def run(self, arguments: Sequence[str], seconds_max: float) -> Finished:
        """Runs the checkout's Python on the copy; raises Ended when told to end meanwhile."""
        with self.lock:
            if self.ending:
                raise Ended
            process = self.running = subprocess.Popen(
                [str(self.python), *arguments],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        try:
            output, _ = process.communicate(timeout=seconds_max)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            output, code = _ended(process), None
        with self.lock:
            self.running = None
        if self.ending:
            raise Ended
        return Finished(code, output)

    def end(self) -> None:
        """Ends what runs, and lets nothing else begin."""
        with self.lock:
            self.ending, running = True, self.running
        if running is not None:
            _interrupt(running)
            try:
                running.wait(INTERRUPTED_SECONDS)
            except subprocess.TimeoutExpired:
                _kill(running)

    def _environment(self) -> dict[str, str]:
        """The environment of programs: without CI, so that tests which lack a program are skipped,
        and not taken for tests that notice something."""
        roots = [str(self.folder / root) for root in SOURCE_ROOTS if (self.folder / root).is_dir()]
        kept = {name: value for name, value in os.environ.items() if name != "CI"}
        return {**kept, "PYTHONPATH": os.pathsep.join(roots)}


@contextmanager
def copied(tree: Path) -> Iterator[Copy]:
    """Inside, there is a copy of the checkout `tree`."""
    kept = tempfile.TemporaryDirectory(prefix="rekindle-mutants-", ignore_cleanup_errors=True)
    with kept as name:
        folder = Path(name)
        for file in _files(tree):
            place = folder / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / file, place, follow_symlinks=False)
        yield Copy(folder, python_of(tree))


def python_of(tree: Path) -> Path:
    """Gives the Python that `make setup` has put into a checkout."""
    return tree / ".venv" / "bin" / "python"


def _files(tree: Path) -> Iterator[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        path = tree / name
        if name and (path.is_file() or path.is_symlink()):
            yield Path(name)
    for jar in _jars(tree):
        yield jar.relative_to(tree)


def _jars(tree: Path) -> list[Path]:
    roots = (tree / root for root in SOURCE_ROOTS)
    return [jar for root in roots if root.is_dir() for jar in root.glob(JARS)]


def _interrupt(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)


def _ended(process: subprocess.Popen[str]) -> str:
    """Interrupts a program, kills it with its group where that does not help; gives its output."""
    _interrupt(process)
    try:
        output, _ = process.communicate(timeout=INTERRUPTED_SECONDS)
    except subprocess.TimeoutExpired:
        _kill(process)
        output, _ = process.communicate()
    return output


def _kill(process: subprocess.Popen[str]) -> None:
    """Kills a program that has not ended yet, with all that it has started in its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
