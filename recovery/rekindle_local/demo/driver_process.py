"""The driver as a process: starts it, follows its event file, asks it to finish, ends it.

A watcher ends it when its owner is gone. It knows nothing of what the events mean. `demo_scenario`,
the soak and the integration tests call it.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekindle.model.errors import RunError
from rekindle.protocol.store_paths import Place
from rekindle_cli.jsonl_tail import EventFile
from rekindle_local import process_sets
from rekindle_local.process_reaper import ProcessReaper
from rekindle_spark.store.checkpoint_store import FINISH_REQUEST, RATE_REQUEST
from rekindle_store import store_files

# Variables by which the driver would take its JVM and its settings from another installation.
OTHER_SPARK = ("SPARK_HOME", "SPARK_CONF_DIR")


@dataclass(slots=True)
class DriverProcess:
    """One driver; `directory` takes its log, its event file and its checkpoint store, unless that
    has a `place` elsewhere.

    And, until `end`, the temporary files of its JVM, which a killed one does not remove.
    """

    directory: Path
    place: str | None = None
    process: subprocess.Popen[bytes] | None = None
    arguments: list[str] = field(default_factory=list)
    _environment: dict[str, str] = field(default_factory=dict)
    _followed: EventFile | None = None
    _watcher: ProcessReaper | None = None

    @property
    def store(self) -> Path:
        """The checkpoint store."""
        return self.directory / "store"

    @property
    def events(self) -> Path:
        """The event file, the same for every start."""
        return self.directory / "driver-events.jsonl"

    @property
    def log(self) -> Path:
        """What driver and Spark print."""
        return self.directory / "driver.log"

    @property
    def temporary(self) -> Path:
        """Where Spark puts its scratch folders, and Java the native libraries it unpacks."""
        return self.directory / "temporary"

    def start(
        self,
        pipeline: Path,
        master: str,
        settings: Path,
        conf: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        sidecar: tuple[Path, Place] | None = None,
    ) -> None:
        """Start `rekindle run` in a session of its own; `sidecar` is its socket, and the
        application's name."""
        arguments = [
            *(sys.executable, "-m", "rekindle_cli", "run", str(pipeline)),
            *(
                "--store",
                self.place or str(self.store),
                "--master",
                master,
                "--settings",
                str(settings),
            ),
            # Whoever starts a driver here has had its pipeline checked, or wants it to fail.
            *("--events", str(self.events), "--cluster-has-jar", "--no-check"),
            *(part for key, value in conf.items() for part in ("--conf", f"{key}={value}")),
        ]
        if sidecar is not None:
            socket, place = sidecar
            arguments += ["--sidecar", str(socket), "--name", str(place)]
        self.launch(arguments, environment or {})

    def launch(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start any driver of Spark that writes its events where this one's are, in a session of
        its own."""
        self.arguments = list(arguments)
        self.temporary.mkdir(exist_ok=True)
        java = shlex.join([f"-Djava.io.tmpdir={self.temporary.absolute()}"])
        inherited = {name: text for name, text in os.environ.items() if name not in OTHER_SPARK}
        self._environment = {
            **inherited,
            "SPARK_LOCAL_DIRS": str(self.temporary.absolute()),
            "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {java}",
            **environment,
        }
        self.start_again()

    def start_again(self) -> None:
        """Start another one like the last, which has ended."""
        if self._watcher is None:
            self._watcher = ProcessReaper((), self.directory / "driver-watcher.log")
        self.process = process_sets.start_gated(
            self.arguments, environment=self._environment, entrances=(), log=self.log
        )
        self._watcher.add(self.process.pid)
        process_sets.open_gate(self.process)

    def fresh_events(self) -> Sequence[dict[str, Any]]:
        """Events since the last call."""
        if self._followed is None:
            self._followed = EventFile(self.events)
        return self._followed.fresh()

    def check(self) -> None:
        """Raise RunError when the driver has ended with an error, with what it said last."""
        assert self.process is not None
        code = self.process.poll()
        if code:
            raise RunError(
                where="the driver",
                what=f"ended with exit code {code}: {self._last_words()}",
                remedy=f"see {self.log}",
            )

    @property
    def processes(self) -> tuple[int, ...]:
        """Ids of its processes, Python and Java, once it has been started."""
        assert self.process is not None
        return process_sets.session_processes(self.process.pid)

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def request_finish(self) -> None:
        """Ask for the final watermark and an orderly end."""
        store_files.at(self.place or self.store).put({FINISH_REQUEST: b""})

    def hold_rate(self) -> None:
        """Have the rate of rows stay as it is, though it is calibrated."""
        store_files.at(self.place or self.store).put({RATE_REQUEST: b""})

    def release_rate(self) -> None:
        """Let the rate of rows be calibrated again."""
        store_files.at(self.place or self.store).remove([RATE_REQUEST])

    def kill(self) -> None:
        """SIGKILL the driver with its JVM."""
        self._signal(signal.SIGKILL)
        if self.process is None:
            return
        if self._watcher is not None:
            self._watcher.drop(self.process.pid)
        self.process.wait()

    def end(self) -> None:
        """End it whatever state it is in, and remove its temporary files; at once where Ctrl-C
        interrupts the wait for an orderly end."""
        try:
            if self.process is not None and self.process.poll() is None:
                self._signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=10)
        finally:
            self.kill()
            if self._watcher is not None:
                self._watcher.close()
                self._watcher = None
            shutil.rmtree(self.temporary, ignore_errors=True)

    def _signal(self, number: int) -> None:
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " ".join(lines[-1:])[:400]
