"""Builds the programs of the test control plane from their Go modules.

Two modules are built at the same time: while one waits for the network or links, the other
compiles. A program appears in its folder whole, with its digest, after it has printed its version;
a second builder waits for the first. test_programs.py decides what is missing, and is the only
caller.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import RekindleError, RunError
from rekindle_local import cached_files
from testbed import go_modules, program_runs, workshops
from testbed.go_modules import GoModule

Progress = Callable[[str], None]

_VERSION_ELEMENT = re.compile(r"v[0-9]+")
# Of one step; on two busy cores the longest takes ten minutes.
STEP_SECONDS_MAX = 3_600.0
TRIAL_SECONDS_MAX = 60.0
PROGRESS_SECONDS = 10.0
# More at a time would need more memory than small machines have: a linker takes 1 GB.
MODULES_AT_A_TIME = 2
# Tests that find a failure this recent repeat its message instead of the build.
FAILURE_SECONDS = 600.0
_VERSION_ARGUMENTS = {
    "coredns": ("-version",),
    "helm": ("version",),
    "kubectl": ("version", "--client"),
}
REMEDY = (
    "see whether `go version` is recent, Go modules can be downloaded, and 6 GB of disk are free"
)


@dataclass(frozen=True, slots=True)
class Order:
    """Programs of a module that are missing in a folder, or damaged there."""

    module: GoModule
    folder: Path
    names: Sequence[str]


def build(orders: Sequence[Order], progress: Progress, *, again: bool = False) -> None:
    """Builds all programs that were ordered, but for those that are there by now.

    A build that has just failed is repeated only `again`. Raises `InputError` when Go is missing
    or a folder cannot be written, `RunError` when a program cannot be built; others are built
    nevertheless.
    """
    if not orders:
        return
    go = find_go(orders)
    stopped = threading.Event()
    with ThreadPoolExecutor(MODULES_AT_A_TIME) as pool:
        running = [
            pool.submit(_Build(go, order, progress, stopped, again=again).run) for order in orders
        ]
        try:
            errors = [error for one in running if (error := _error(one))]
        except BaseException:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise
    cached_files.remove_unused(orders[0].folder.parent, now=time.time(), progress=progress)
    for error in errors[1:]:
        progress(str(error))
    if errors:
        raise errors[0]


def find_go(orders: Sequence[Order]) -> str:
    """Returns the path of Go. Raises `InputError`, which names the programs, when it is missing."""
    lacking = [_described(order, name) for order in orders for name in order.names]
    return program_runs.find(
        "go",
        where="the test control plane",
        what=f"{orders[0].folder.parent} holds no {', '.join(lacking)}, and Go is not installed to "
        "build them",
        remedy="install Go (on Debian `apt-get install golang-go`), or let KUBEBUILDER_ASSETS "
        "name a folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler",
    )


def _error(running: Future[None]) -> RekindleError | None:
    try:
        running.result()
    except RekindleError as error:
        return error
    return None


def _described(order: Order, name: str) -> str:
    return f"{name} (it is damaged)" if (order.folder / name).exists() else name


def _executable(package: str) -> str:
    """The name that Go gives to the program of a package."""
    *path, last = package.split("/")
    return path[-1] if path and _VERSION_ELEMENT.fullmatch(last) else last


class _Build:
    """One order, from the lock of its folder to the programs in it."""

    def __init__(
        self, go: str, order: Order, progress: Progress, stopped: threading.Event, *, again: bool
    ) -> None:
        self._go = go
        self._module, self._folder, self._names = order.module, order.folder, order.names
        self._progress = progress
        self._stopped = stopped
        self._begun = time.monotonic()
        # A builder that was waited for may have failed since.
        self._failures_since = time.time() - (0.0 if again else FAILURE_SECONDS)
        self._environment = {**os.environ, **go_modules.SETTINGS}
        self._downloaded = self._packages = self._compiled = 0
        self._compiles = False

    def run(self) -> None:
        with workshops.alone(self._folder, self._say):
            missing = [name for name in self._names if not self._is_there(name)]
            if missing:
                self._check_last_failure()
                self._build_or_record_why_not(missing)

    def _say(self, line: str) -> None:
        self._progress(f"{self._module.name}: {line}")

    def _is_there(self, name: str) -> bool:
        place = self._folder / name
        # What copies a cache may have left out the right to execute.
        if cached_files.is_intact(place) and os.access(place, os.X_OK):
            return True
        if os.path.lexists(place):
            self._say(f"{place} is damaged and is built again")
            cached_files.remove(place)
        return False

    def _check_last_failure(self) -> None:
        text = cached_files.newest_failure(self._folder, self._failures_since)
        if text:
            raise RunError(
                where=str(self._folder),
                what=f"a build has just failed there ({text})",
                remedy="see to that, then run `make testbed`, which tries it again",
            )

    def _build_or_record_why_not(self, names: Sequence[str]) -> None:
        try:
            with (
                cached_files.recording_failures(
                    self._folder, is_wanted=lambda _: not self._stopped.is_set()
                ),
                workshops.opened(self._folder) as workshop,
            ):
                self._build(names, workshop)
        except OSError as error:
            raise RunError(
                where=str(self._folder), what=f"cannot be written ({error})", remedy=REMEDY
            ) from error

    def _build(self, names: Sequence[str], workshop: Path) -> None:
        wanted = self._module
        self._say(f"building {', '.join(names)} {wanted.version}: minutes, once")
        self._environment["GOTMPDIR"] = str(workshop)  # and what is left there goes with it
        self._choose_this_machine(workshop)
        self._write_module(workshop)
        packages = [wanted.packages[name] for name in names]
        self._follow(["list", "-deps", *packages], workshop, self._count_listed)
        self._say(f"{self._seconds()} {self._packages} packages to compile at most")
        made = workshop / "programs"
        made.mkdir()
        self._compiles = True
        arguments = ["build", "-v", *wanted.flags, "-o", f"{made}/", *packages]
        self._follow(arguments, workshop, self._count_compiled)
        for name, package in zip(names, packages, strict=True):
            program = made / _executable(package)
            _try(program, name)
            cached_files.put(program, self._folder / name)
        self._say(f"{self._seconds()} done, kept in {self._folder}")

    def _choose_this_machine(self, workshop: Path) -> None:
        """Go may have been set up to build for another machine."""
        printed = self._run(["env", "GOHOSTOS", "GOHOSTARCH"], workshop)
        self._environment |= dict(zip(("GOOS", "GOARCH"), printed.split(), strict=False))

    def _write_module(self, workshop: Path) -> None:
        file = workshop / "go.mod"
        file.write_text("module testbed\n", encoding="utf-8")
        wanted = f"{self._module.module}@{self._module.version}"
        upstream = Path(self._run(["list", "-m", "-f", "{{.GoMod}}", wanted], workshop).strip())
        text = go_modules.compose(self._module, upstream.read_text(encoding="utf-8"))
        file.write_text(text, encoding="utf-8")

    def _run(self, arguments: Sequence[str], workshop: Path) -> str:
        return program_runs.run(
            [self._go, *arguments],
            where=f"go {arguments[0]} {arguments[-1]}",
            remedy=REMEDY,
            seconds_max=STEP_SECONDS_MAX,
            cwd=workshop,
            env=self._environment,
        )

    def _follow(
        self, arguments: Sequence[str], workshop: Path, on_line: Callable[[str], bool]
    ) -> None:
        following = program_runs.ProgramWatch(
            on_line=on_line,
            on_tick=self._report,
            tick_seconds=PROGRESS_SECONDS,
            stopped=self._stopped,
        )
        program_runs.follow(
            [self._go, *arguments],
            following,
            where=f"go {arguments[0]} {arguments[-1]}",
            remedy=REMEDY,
            seconds_max=STEP_SECONDS_MAX,
            cwd=workshop,
            env=self._environment,
        )

    def _count_listed(self, line: str) -> bool:
        downloads, package = line.startswith("go: downloading "), " " not in line
        self._downloaded += downloads
        self._packages += package
        return downloads or package

    def _count_compiled(self, line: str) -> bool:
        package = " " not in line
        self._compiled += package
        return package or line.startswith("go: downloading ")

    def _report(self) -> None:
        if self._compiles:
            done = f"{self._compiled} of at most {self._packages} packages compiled, then linked"
        else:
            done = f"{self._downloaded} modules downloaded"
        self._say(f"{self._seconds()} {done}")

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._begun:4.0f} s:"


def _try(program: Path, name: str) -> None:
    """Runs a program that was built, so that none is kept which does not run on this machine."""
    try:
        program_runs.run(
            [program, *_VERSION_ARGUMENTS.get(name, ("--version",))],
            where=name,
            remedy="see whether programs in its folder may be executed, and GOOS and GOARCH are "
            "those of this machine",
            seconds_max=TRIAL_SECONDS_MAX,
        )
    except OSError as error:
        raise RunError(
            where=name,
            what=f"was built, but does not run here ({error.strerror})",
            remedy=f"see whether programs in {program.parents[2]} may be executed",
        ) from error
