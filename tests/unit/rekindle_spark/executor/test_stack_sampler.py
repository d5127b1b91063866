"""Where CPU goes: stacks of threads, kinds of processes, and the picture of both."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rekindle.model.errors import InputError
from rekindle_bench import flame_graph, thread_cpu
from rekindle_spark.executor import stack_sampler
from rekindle_spark.executor.stack_sampler import StackSampler

BUSY_SECONDS = 0.3


def burn(until: threading.Event) -> None:
    while not until.is_set():
        sum(range(1000))


@contextmanager
def running(*targets: str) -> Iterator[None]:
    """A thread that burns CPU under each label, and one that waits."""
    over = threading.Event()

    def labelled(name: str) -> None:
        with stack_sampler.label(name):
            burn(over)

    started = [threading.Thread(target=labelled, args=(name,)) for name in targets]
    started.append(threading.Thread(target=over.wait))
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in started:
            thread.join()


def used_seconds() -> float:
    return time.process_time()


def test_stacks_weigh_what_their_threads_have_used(tmp_path: Path) -> None:
    sampler = StackSampler("host", tmp_path / "host.stacks")
    with running("busy"):
        begin = used_seconds()
        while used_seconds() - begin < BUSY_SECONDS:
            sampler.look()
            time.sleep(0.002)
    sampler.write()
    found = {}
    for line in (tmp_path / "host.stacks").read_text().splitlines():
        stack, _, microseconds = line.rpartition(" ")
        found[stack] = int(microseconds) / 1e6
    burnt = sum(spent for stack, spent in found.items() if stack.startswith("host;busy;"))
    assert burnt > BUSY_SECONDS / 3
    assert burnt > 0.8 * sum(found.values()), "who waits weighs nothing"
    assert any(stack.split(";")[-1].endswith("test_stack_sampler.burn") for stack in found)


def test_a_process_that_has_used_nothing_since_the_last_look_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks: list[int] = []
    used = {"process": 0, "own": 0}
    monkeypatch.setattr(StackSampler, "look", lambda _: looks.append(used["process"]))
    monkeypatch.setattr(time, "process_time_ns", lambda: used["process"])
    monkeypatch.setattr(time, "thread_time_ns", lambda: used["own"])
    sampler = StackSampler("host", tmp_path / "host.stacks")
    for process, own in (
        (0, 0),
        (1_000_000, 1_000_000),
        (1_060_000, 1_000_000),
        (1_120_000, 1_000_000),
    ):
        used.update(process=process, own=own)
        sampler.look_if_used()
    assert looks == [0, 1_120_000], "what was too little is not forgotten"


def test_a_label_ends_with_its_block() -> None:
    with stack_sampler.label("outer"):
        with stack_sampler.label("inner"):
            assert stack_sampler._labels[threading.get_ident()] == "inner"
        assert stack_sampler._labels[threading.get_ident()] == "outer"
    assert threading.get_ident() not in stack_sampler._labels


def test_nothing_is_sampled_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(stack_sampler.FOLDER, raising=False)
    before = threading.active_count()
    stack_sampler.begin("driver")
    assert threading.active_count() == before


def test_what_is_asked_for_is_written_into_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[StackSampler] = []
    monkeypatch.setenv(stack_sampler.FOLDER, str(tmp_path))
    monkeypatch.setattr(StackSampler, "start", lambda one: started.append(one))
    stack_sampler.begin("driver")
    assert [one.path for one in started] == [tmp_path / f"driver-{os.getpid()}.stacks"]


def test_a_folder_that_is_not_there_is_refused_by_the_driver_and_said_by_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(stack_sampler.FOLDER, str(tmp_path / "none"))
    before = threading.active_count()
    with pytest.raises(InputError, match=r"REKINDLE_PROFILE: is .*none, no folder"):
        stack_sampler.begin("driver")
    stack_sampler.begin("host", refuses=False)
    assert capsys.readouterr().err.count("no folder") == 1
    assert threading.active_count() == before


def test_a_folder_that_has_gone_ends_the_samples_and_not_the_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    StackSampler("host", tmp_path / "gone" / "host.stacks")._run()
    assert capsys.readouterr().err.endswith("cannot be written (No such file or directory)\n")


def test_stacks_beyond_a_limit_are_charged_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stack_sampler, "STACKS_MAX", 0)
    sampler = StackSampler("host", tmp_path / "host.stacks")
    with running("busy"):
        begin = used_seconds()
        while used_seconds() - begin < BUSY_SECONDS / 3:
            sampler.look()
            time.sleep(0.002)
    assert list(sampler.microseconds) == ["host;others"]


def test_cpu_of_processes_is_found_by_kind() -> None:
    burn_until = used_seconds() + 0.1
    while used_seconds() < burn_until:
        pass
    found = thread_cpu.cpu_by_kind([os.getpid(), 2**22 + 1])
    assert found.keys() == {("driver", "Python")}
    assert found["driver", "Python"] >= 0.1


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (b"python\0-m\0rekindle_spark.executor.host\0/s\x001\0", ("host", False)),
        (
            b"/java\0-cp\0x\0org.apache.spark.executor.CoarseGrainedExecutorBackend\0",
            ("executor", True),
        ),
        (b"/java\0org.apache.spark.deploy.worker.Worker\0", ("worker", True)),
        (b"/opt/java\0org.apache.spark.deploy.SparkSubmit\0", ("driver", True)),
        (b"python\0-m\0rekindle_local\0run\0", ("driver", False)),
        (b"/opt/java/bin/python3\0-m\0rekindle_local\0run\0", ("driver", False)),
    ],
)
def test_a_process_is_known_by_its_command(command: bytes, expected: tuple[str, bool]) -> None:
    assert thread_cpu._process(command) == expected


def test_a_thread_is_known_by_its_name_or_has_its_own() -> None:
    names = ("Executor task l\n", "Executor task i\n", "GC Thread#3\n", "rekindle-reader\n")
    expected = ["tasks", "tasks", "garbage collection", "reading blocks"]
    assert thread_cpu._kind("pool-7-thread-1\n") == "thread pool-7-thread"
    assert [thread_cpu._kind(name) for name in names] == expected


def test_frames_are_as_wide_as_what_was_spent_in_them() -> None:
    stacks = {("host", "late", "m.f", "m.g"): 3.0, ("host", "late", "m.f"): 1.0, ("driver",): 4.0}
    text = flame_graph.draw(stacks, eyebrow="bench", headline="CPU & time", unit="s")
    root = ElementTree.fromstring(text)
    widths = {}
    for group in root.iter("{http://www.w3.org/2000/svg}g"):
        title = group.find("{http://www.w3.org/2000/svg}title")
        rect = group.find("{http://www.w3.org/2000/svg}rect")
        if title is not None and title.text is not None and rect is not None:
            widths[title.text] = float(rect.get("width", "0"))
    assert widths["host: 4.000 s"] == pytest.approx(widths["driver: 4.000 s"])
    assert widths["m.g: 3.000 s"] == pytest.approx(0.75 * widths["m.f: 4.000 s"])


def test_a_picture_of_nothing_is_drawn() -> None:
    ElementTree.fromstring(flame_graph.draw({}, eyebrow="bench", headline="none", unit="s"))
