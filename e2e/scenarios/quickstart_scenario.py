"""The scenario `quickstart`: docs/quickstart.md, followed to the letter on an empty cluster.

The page's blocks run in one shell, each as it stands, and what they print is compared with what the
page shows. One block is the reader's own: where the images are, and how a machine is switched off.
Here the nodes have the images, and the shell asks by a file for a machine to be killed. Afterwards
the cluster must have told of it, and each row of the output must be right.

`python -m scenarios` calls `perform`, and `scenario_prerequisites` what checks.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from rekindle.model.errors import InputError, RunError
from scenarios import docs_instructions, example_rows, helm_chart, incident_checks
from scenarios.cluster_setup import Ground
from scenarios.deployment import GROUP, NAMESPACE, VERSION, ZONES
from scenarios.docs_instructions import Block
from scenarios.pod_logs import PodLogs
from testbed import test_programs
from testbed.cluster.node_configuration import NodeSpec
from testbed.test_programs import HELM, KUBECTL

NAME = "quickstart"
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quickstart.md"
# As the page asks for them.
NODES, NODE = 4, NodeSpec(cores=2.0, memory_mib=5_120)
YOURS = (
    "REGISTRY=localhost",
    'stop_machine() { echo "$1" > "$STOP.new"; mv "$STOP.new" "$STOP"; '
    'while [ -e "$STOP" ]; do sleep 0.2; done; }',
)
PLUGIN = "kubectl-rekindle"
LOOK_SECONDS = 0.5
SECONDS_MAX = 2_400.0
LINES_TOLD = 6


def perform(directory: Path) -> int:
    """Follow the page in an empty folder; how many rows came out.

    Raises `RunError` that names the page and its line where a block fails, prints something else,
    or leaves something that is not as the page says.
    """
    for name in ("logs", "printed"):
        (directory / name).mkdir()
    given = docs_instructions.blocks(PAGE.read_text(encoding="utf-8"), str(PAGE.relative_to(ROOT)))
    with Ground(directory / "site") as ground:
        ground.cluster.add(NODES, NODE, zones=ZONES)
        reading = _Reading(ground, directory, given)
        with reading.started() as shell:
            reading.follow(shell)
        for block in given:
            reading.check_printed(block)
        reading.check_told()
        return example_rows.check_rows(ground.claim)


@dataclass(slots=True)
class _Reading:
    """The page being followed: a shell that runs it, and what the cluster tells meanwhile.

    At the page's end all of that is gone, so `recoveries` has each by its name as it was last seen.
    `stopped` are the nodes whose machines it has switched off.
    """

    ground: Ground
    directory: Path
    blocks: Sequence[Block]
    recoveries: dict[str, Any] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    was_protected: bool = False
    logs: PodLogs = field(init=False)
    _shown: int = 0

    def __post_init__(self) -> None:
        self.logs = PodLogs(self.ground.core, self.directory / "logs")

    @property
    def stop(self) -> Path:
        """The name of the node whose machine shall be switched off, while there is one."""
        return self.directory / "stop"

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        """A shell that runs the page; after it, nothing of it runs."""
        file = self.directory / PAGE.name
        text = docs_instructions.script(self.blocks, YOURS, self.directory / "printed")
        file.write_text(text, encoding="utf-8")
        with (self.directory / "shell.log").open("wb") as log:
            shell = subprocess.Popen(
                ["bash", "-eu", str(file)],
                cwd=ROOT,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield shell
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()

    def follow(self, shell: subprocess.Popen[bytes]) -> None:
        """Until the shell has come to the page's end. Raises `RunError` where it does not."""
        end = time.monotonic() + SECONDS_MAX
        while shell.poll() is None:
            self._look()
            if time.monotonic() > end:
                raise self._failure(f"has not ended after {SECONDS_MAX:.0f} s")
            time.sleep(LOOK_SECONDS)
        if shell.returncode != 0:
            # Why an application did not come is not what the page's commands say.
            if self.ground.operators.failures:
                raise self.ground.operators.failures[0]
            raise self._failure(f"ended with code {shell.returncode}")

    def check_printed(self, block: Block) -> None:
        """That a block has printed what the page shows."""
        line = docs_instructions.unprinted(block, self._printed(block))
        if line is not None:
            raise RunError(
                where=_place(block),
                what=f"did not print what the page shows: {line.strip()}",
                remedy=f"see what it did print in {self._log(block)}",
            )

    def check_told(self) -> None:
        """The application was protected, and one Recovery told of the loss, to its end."""
        incident_checks.check("the application was protected", self.was_protected)
        incident_checks.check("there was one Recovery", len(self.recoveries) == 1)
        (story,) = self.recoveries.values()
        incident_checks.check_told(story, lost=self.stopped, kind="Independent")

    def _look(self) -> None:
        self._stop_machine()
        begun = [block for block in self.blocks if self._log(block).exists()]
        for block in begun[self._shown :]:
            test_programs.say(f"{_place(block)}: {block.commands[0]}")
        self._shown = len(begun)
        self.logs.look(NAMESPACE, helm_chart.NAMESPACE)
        with suppress(ApiException, HTTPError):  # not there yet, or gone
            self.was_protected |= any(map(_is_protected, self._list("recoverypolicies")))
            for story in self._list("recoveries"):
                self.recoveries[story["metadata"]["name"]] = story

    def _stop_machine(self) -> None:
        if self.stop.exists():
            try:
                name = self.stop.read_text(encoding="utf-8").strip()
                self.ground.cluster.kill(name)
                self.stopped.append(name)
            except InputError as error:
                raise self._failure(f"asks for a machine to be stopped: {error}") from error
            self.stop.unlink()

    def _list(self, plural: str) -> list[Any]:
        found = self.ground.custom.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural)
        return list(found["items"])

    def _failure(self, what: str) -> RunError:
        """At the block that was begun last."""
        block = next(one for one in reversed(self.blocks) if self._log(one).exists())
        lines = [line.strip() for line in self._printed(block).splitlines() if line.strip()]
        said = " | ".join(lines[-LINES_TOLD:]) or "nothing"
        return RunError(
            where=_place(block),
            what=f"{what}, and printed: {said}",
            remedy=f"see {self._log(block)}, and the logs of pods beside it",
        )

    def _log(self, block: Block) -> Path:
        return docs_instructions.log(self.directory / "printed", block)

    def _printed(self, block: Block) -> str:
        return self._log(block).read_text(encoding="utf-8", errors="replace")

    def _environment(self) -> dict[str, str]:
        """What a reader has: kubectl with the plugin, helm, and access to the cluster."""
        programs = self.directory / "programs"
        programs.mkdir()
        for name in (KUBECTL, HELM):
            (programs / name).symlink_to(self.ground.programs[name])
        return {
            **os.environ,
            **helm_chart.homes(self.directory / "helm"),
            "KUBECONFIG": str(self.ground.cluster.kubeconfig),
            "PATH": os.pathsep.join((str(programs), _path())),
            "STOP": str(self.stop),
        }


def check_plugin() -> None:
    """Raises `InputError` where the reader's plugin of kubectl is missing."""
    if shutil.which(PLUGIN, path=_path()) is None:
        raise InputError(
            where=PLUGIN,
            what="is not beside this Python, nor on the PATH",
            remedy="run `make setup`",
        )


def _path() -> str:
    """Programs that are installed with us, and all others."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def _is_protected(policy: Any) -> bool:
    conditions = policy.get("status", {}).get("conditions", ())
    return any(one["type"] == "Protected" and one["status"] == "True" for one in conditions)


def _place(block: Block) -> str:
    return f"{PAGE.relative_to(ROOT)}:{block.line}"
