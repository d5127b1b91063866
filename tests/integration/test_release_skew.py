"""This release beside the one before it: coordinator, sidecar, driver and definitions.

The release before is taken out of git. Each part of one release works with all others of the other
one, and a coordinator of either goes on in the middle of an incident that the other has begun.
"""

import contextlib
import io
import json
import os
import queue
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from rekindle_local.local_zookeeper import LocalZookeeper

ROOT = Path(__file__).parents[2]
# The commit of the release before this one; it moves with each release.
PREVIOUS = "5974126b866f672b1953feeef4cf00b236d6c1fe"
NOW, BEFORE = "now", "before"
SESSION_SECONDS = "4"
# What a machine with much else to do needs; two seconds are usual.
WAIT_SECONDS_MAX = 240.0
PARTITIONS = {"source/0", "source/1", "counts/0", "counts/1"}
SIDECARS = {
    NOW: "from rekindle_sidecar.sidecar_main import main; main()",
    BEFORE: "from rekindle_sidecar.container import main; main()",
}
COORDINATORS = {NOW: "rekindle_cli", BEFORE: "rekindle_local"}


@dataclass(frozen=True)
class Releases:
    """Where the packages of each release are."""

    folders: Mapping[str, Path]

    def start(
        self, release: str, *command: str, log: Path, **variables: str
    ) -> subprocess.Popen[str]:
        """A process of a release; its output can be read, its errors are in a log."""
        environment = {**os.environ, **variables}
        environment["PYTHONPATH"] = str(self.folders[release] / "recovery")
        with log.open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, *command],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=log.parent,
            )


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    folder = tmp_path_factory.mktemp("before")
    done = subprocess.run(
        ["git", "archive", PREVIOUS, "recovery", "crds"], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"git has no {PREVIOUS[:10]} here: the release before is not tested")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return Releases({NOW: ROOT, BEFORE: folder})


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZookeeper]:
    with LocalZookeeper(directory=tmp_path_factory.mktemp("zookeeper")) as found:
        yield found


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Lines:
    """What a process prints, line by line, read as it comes: of several lines that come together
    none is left in a buffer that nobody looks into."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def next(self, seconds_max: float) -> str:
        """The next line; empty where none comes for so long, or the process has ended."""
        try:
            return self._lines.get(timeout=max(0.0, seconds_max))
        except queue.Empty:
            return ""

    def _read(self, stream: IO[str]) -> None:
        with contextlib.suppress(ValueError):  # the stream is closed once the process has ended
            for line in stream:
                self._lines.put(line)
        self._lines.put("")


@dataclass
class World:
    """One application, its sidecar, and coordinators one after the other."""

    releases: Releases
    zookeeper: LocalZookeeper
    folder: Path
    name: str

    def coordinator(self, release: str) -> "subprocess.Popen[str]":
        command = ["-m", COORDINATORS[release], "coordinator"]
        options = ["--zookeeper", self.zookeeper.connect_string, "--port", "0"]
        options += ["--session-seconds", SESSION_SECONDS]
        options += ["--log", str(self.folder / f"coordinator-{release}.jsonl")]
        log = self.folder / f"coordinator-{release}.log"
        return self.releases.start(release, *command, *options, log=log)

    def sidecar(self, release: str) -> "subprocess.Popen[str]":
        return self.releases.start(
            release,
            "-c",
            SIDECARS[release],
            log=self.folder / "sidecar.log",
            REKINDLE_ZOOKEEPER=self.zookeeper.connect_string,
            REKINDLE_NAMESPACE="team",
            REKINDLE_APPLICATION=self.name,
            REKINDLE_SIDECAR_SOCKET=str(self.folder / "sidecar"),
        )

    def driver(self, release: str) -> "subprocess.Popen[str]":
        script = str(ROOT / "tests" / "integration" / "release_driver.py")
        arguments = (str(self.folder / "sidecar"), self.name)
        return self.releases.start(release, script, *arguments, log=self.folder / "driver.log")

    def placed(self, plans: Lines, *, on: set[str]) -> None:
        """Wait until all partitions run, and on these nodes alone."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        found: dict[str, str] = {}
        while found.keys() != PARTITIONS or not set(found.values()) <= on:
            line = plans.next(deadline - time.monotonic())
            assert line, f"no plan onto {sorted(on)}; the newest is {found}; {self._logs()}"
            found = json.loads(line)

    def _logs(self) -> str:
        texts = (path.read_text(errors="replace")[-2_000:] for path in self.folder.glob("*.log"))
        return "\n".join(texts)


def lose(driver: "subprocess.Popen[str]", node: str) -> None:
    assert driver.stdin is not None
    driver.stdin.write(f"lose {node}\n")
    driver.stdin.flush()


@pytest.mark.parametrize(
    ("coordinators", "sidecar", "driver"),
    [
        ((BEFORE, BEFORE), NOW, NOW),
        ((NOW, NOW), BEFORE, NOW),
        ((NOW, NOW), NOW, BEFORE),
        ((NOW, NOW), BEFORE, BEFORE),
        ((BEFORE, BEFORE), NOW, BEFORE),
        ((BEFORE, BEFORE), BEFORE, NOW),
        ((NOW, BEFORE), NOW, NOW),
        ((BEFORE, NOW), BEFORE, BEFORE),
    ],
    ids=[
        "coordinator before",
        "sidecar before",
        "driver before",
        "coordinator upgraded alone",
        "sidecar upgraded alone",
        "driver upgraded alone",
        "coordinator rolled back in an incident",
        "coordinator upgraded in an incident",
    ],
)
def test_releases_next_to_each_other_work_together(
    releases: Releases,
    zookeeper: LocalZookeeper,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    coordinators: tuple[str, str],
    sidecar: str,
    driver: str,
) -> None:
    name = request.node.callspec.id.replace(" ", "-")
    world = World(releases, zookeeper, tmp_path, name)
    first, second = coordinators
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended(world.sidecar(sidecar)))
        leader = stack.enter_context(ended(world.coordinator(first)))
        running = stack.enter_context(ended(world.driver(driver)))
        assert running.stdout is not None
        plans = Lines(running.stdout)
        world.placed(plans, on={"n1", "n2", "n3"})
        lose(running, "n1")
        world.placed(plans, on={"n2", "n3"})
        # in an incident, whose node has not come back
        leader.kill()
        lose(running, "n2")
        stack.enter_context(ended(world.coordinator(second)))
        world.placed(plans, on={"n3"})


def definitions(folder: Path) -> dict[str, Any]:
    """The schema of each version of each definition."""
    found = {}
    for path in sorted((folder / "crds").glob("*.yaml")):
        for body in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            for version in body["spec"]["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                found[f"{body['metadata']['name']}/{version['name']}"] = schema
    return found


def lost(before: Any, now: Any, path: str) -> Iterator[str]:
    """What an object of before may have that the schema of now does not take, or demands more."""
    if "properties" in before:
        fields = now.get("properties", {})
        for name, schema in before["properties"].items():
            if name in fields:
                yield from lost(schema, fields[name], f"{path}.{name}")
            elif not now.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{name} is gone"
    if before.get("type") != now.get("type"):
        yield f"{path} is {now.get('type')}, was {before.get('type')}"
    demanded = set(now.get("required", ())) - set(before.get("required", ()))
    yield from (f"{path}.{name} is demanded" for name in sorted(demanded))
    words = set(before.get("enum", ())) - set(now.get("enum", before.get("enum", ())))
    yield from (f"{path} takes {word} no more" for word in sorted(map(str, words)))
    if "items" in before and "items" in now:
        yield from lost(before["items"], now["items"], f"{path}[]")


def test_an_object_of_the_release_before_is_one_of_this(releases: Releases) -> None:
    before, now = (definitions(releases.folders[release]) for release in (BEFORE, NOW))
    assert before.keys() <= now.keys()
    assert [fault for name in before for fault in lost(before[name], now[name], name)] == []


def test_a_field_that_is_gone_or_demanded_would_be_found() -> None:
    before = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"]}}}
    assert [*lost(before, {"type": "object"}, "k")] == ["k.a is gone"]
    now = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}}
    assert [*lost(before, {**now, "required": ["a"]}, "k")] == [
        "k.a takes y no more",
        "k.a is demanded",
    ]
