"""Work of hosts beside steps, as actions: checkpoints, durable input, processes, memory, sockets.

Outside of requests an error may come out of an action: its caller in a host takes it.
"""
# Arguments are those that callers pass.
# ruff: noqa: ARG005

import contextlib
import gc
import io
import json
import os
import select
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import type_world
from host_story import Action, Story, forget_what_is_kept
from pyspark import cloudpickle

from rekindle_spark.checkpoint import state_files
from rekindle_spark.driver import stopped_branches
from rekindle_spark.executor import (
    host,
    host_scheduler,
    host_socket,
    memory_gauge,
    native_libraries,
    sandbox,
    stack_sampler,
)
from rekindle_spark.executor.host_socket import ConnectionThreads
from rekindle_spark.executor.partition_runner import PartitionRunner
from rekindle_spark.executor.sandbox import Sandboxes
from rekindle_spark.executor.stack_sampler import StackSampler
from rekindle_spark.operators import FINAL_WATERMARK, StatefulOperator
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline, Stream, count, total
from rekindle_spark.user_code import print_forwarding, watchdog
from rekindle_spark.user_code.watchdog import Watchdog

SECOND = 1_000_000
cloudpickle.register_pickle_by_value(sys.modules[__name__])
OUT = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("n", pa.int64())])


FEW = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("n", pa.int64())])


class Columns:
    """Rows with a column of each type that a state may have."""

    event_time = "at"

    def __init__(self, schema: pa.Schema, content: bytes) -> None:
        self.schema, self.content = schema, content

    def check(self, step: str) -> None: ...
    def rows_at(self, event_time: int) -> int: ...
    def event_time_at(self, offset: int) -> int: ...

    def read(self, begin: int, end: int) -> pa.Table:
        with pa.ipc.open_stream(self.content) as reader:
            return reader.read_all().slice(begin, end - begin)


def columns(rows: int = 12) -> Columns:
    arrays = {
        "at": pa.array([n * SECOND for n in range(rows)], pa.timestamp("us")),
        "key": pa.array([f"k{n % 3}" for n in range(rows)]),
        "n": pa.array(range(rows)),
    }
    for number, typed in enumerate(type_world.TYPES):
        is_carried = not type_world.refusal("map, filter, sink", typed)
        if typed.edges and is_carried and not pa.types.is_run_end_encoded(typed.kind):
            arrays[f"c{number}"] = typed.array(
                [typed.edges[n % len(typed.edges)] for n in range(rows)]
            )
    table = pa.table(arrays)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Columns(table.schema, sink.getvalue())


class Counted(StatefulOperator):
    value_schema = pa.schema([("n", pa.int64())])

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        before = value.get()[0] if value.exists() else 0
        value.update((before + len(rows),))
        if key[0] == "k1":
            value.clear()
        return [(row["at"], key[0], 1) for row in rows]


def stated() -> Pipeline:
    pipeline = Pipeline("stated")
    rows = pipeline.source("rows", columns())
    rows.top("best", by="n", count=9, keys=["key"], ties=["n"]).sink("tops")
    rows.window("sums", keys=["key"], size_seconds=99, aggregates={"t": total("n")}).sink("windows")
    rows.join("pairs", rows, keys=["key"], within_seconds=99).sink("joined")
    few = rows.map("few", lambda table: table.select(FEW.names), schema=FEW)
    few.stateful("kept", Counted(), keys=["key"], schema=OUT).sink("values")
    return pipeline


def offsets(*ends: int, last: int = FINAL_WATERMARK) -> list[dict[str, list[Any]]]:
    begins = (0, *ends)
    return [
        {"rows": [begin, end, last if end == ends[-1] else end // 2 * SECOND]}
        for begin, end in zip(begins, ends, strict=False)
    ]


def of_states(folder: Path) -> Iterator[Action]:
    """Checkpoints: whole states, later changes, and both read back."""
    story = Story("states", folder / "states", stated(), offsets(6, 9, 12, last=7 * SECOND)).begin()
    for number, chain in enumerate(story.program.owner):
        if not chain.keyed:
            continue

        write = _writing(story, number)
        write.run()
        yield write
        yield story.again(3, number, restored=2)
    ends = [
        {"rows": [0, 6, 6 * SECOND]},
        {"rows": [6, 9, 9 * SECOND]},
        {"rows": [9, 12, 9 * SECOND]},
    ]
    empty = Story("empty states", folder / "empty", stated(), ends).begin()

    yield _writing(empty, empty.program.numbers["kept/0"])
    yield Action("states: the thread of checkpoints", lambda: _written_by_thread(story))
    yield story.again(2, story.program.numbers["kept/0"], checkpoint=2)
    yield _old_sums(folder)
    yield _joined_load(story)


def _writing(story: Story, number: int) -> Action:
    """Three checkpoints of a partition, one after the other, each with the changes since."""
    states = [story.writing(epoch, number, epoch - 1) for epoch in (1, 2, 3)]

    def run() -> Any:
        forget_what_is_kept()
        checkpoints = state_files.Checkpoints()
        told: list[Any] = []
        with (
            mock.patch.object(state_files, "SMALL_BYTES", 0),
            mock.patch.object(state_files, "CHANGES_SHARE_MAX", 99.0),
        ):
            for state in states:
                told += checkpoints.write([state])
        return told

    return Action(f"{story.name}: write {story.program.partition_names[number]}", run)


def _written_by_thread(story: Story) -> Any:
    """The loop of the thread that writes, in this thread, until nothing is pending."""
    checkpoints = state_files.Checkpoints()
    number = story.program.numbers["kept/0"]
    for epoch in (1, 2):
        checkpoints.submit(story.writing(epoch, number))
    next_one = _until_empty(checkpoints.pending)
    with mock.patch.object(checkpoints.pending, "get", next_one), contextlib.suppress(_Over):
        checkpoints._write_all()
    return checkpoints.taken()


class _Over(BaseException):
    """A thread would wait now."""


def _until_empty(pending: Any) -> Callable[[], Any]:
    get = pending.get

    def next_one() -> Any:
        if pending.empty():
            raise _Over
        return get()

    return next_one


def _joined_load(story: Story) -> Action:
    """Who asks for a state that another one loads."""

    def run() -> Any:
        versions = state_files.Versions()
        loading = state_files.Loading()
        loading.state.set_result(story.state(1, story.program.numbers["kept/0"]))
        versions.loading[1] = loading
        versions.loaded(1, lambda _: None, lambda _: None)  # type: ignore[arg-type, return-value]

        def fails(_: Any) -> Any:
            raise OSError("away")

        with contextlib.suppress(OSError):
            versions.loaded(2, fails, lambda _: None)
        return "done"

    return Action("states: a state that another one loads", run, raises=True)


def _old_sums(folder: Path) -> Action:
    """A state of an earlier version, whose sums have 64 bits."""
    table = pa.table(
        {
            "at": pa.array([1] * 4, pa.timestamp("us")),
            "key": ["k"] * 4,
            "u": pa.array([5] * 4, pa.uint64()),
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    pipeline = Pipeline("old")
    rows = pipeline.source("rows", Columns(table.schema, sink.getvalue()))
    rows.window("sums", keys=["key"], size_seconds=9, aggregates={"u": total("u")}).sink("out")
    story = Story("old sums", folder / "old", pipeline, offsets(2, 4, last=SECOND)).begin()
    number = story.program.numbers["sums/0"]
    tables = story.program.owner[number].root.function.dump(story.state(1, number).operator)
    panes = tables[1].drop_columns(["#over"])
    place = panes.column_names.index("#sum u")
    panes = panes.set_column(place, "#sum u", panes["#sum u"].cast(pa.int64()))
    data, _ = state_files.seal([tables[0], panes], SECOND)
    story.files.put({story.writing(1, number).name: data})
    return story.again(2, number, restored=1)


class Numbered(StatefulOperator):
    value_schema = pa.schema([("rows", pa.int64())])

    def handle(self, key: Any, rows: Any, value: Any) -> Any:
        value.update((1,))
        for row in rows:
            if row["n"] == 3:
                print("a line", end="\n")
                raise ValueError("bad row")
            print("a line", end="\n")
            yield (row["at"], key[0], row["n"])


def small(attach: Callable[[Stream], Stream], **given: Any) -> Pipeline:
    pipeline = Pipeline("small")
    table = pa.table(
        {
            "at": pa.array([n * SECOND for n in range(12)], pa.timestamp("us")),
            "key": [f"k{n % 3}" for n in range(12)],
            "n": pa.array(range(12)),
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    attach(pipeline.source("rows", Columns(table.schema, sink.getvalue()), **given)).sink("out")
    return pipeline


def letters(stream: Stream) -> Stream:
    return stream.stateful(
        "numbered", Numbered(), keys=["key"], schema=OUT, dead_letters=True, parallelism=2
    )


def branched(folder: Path) -> Story:
    """A branch behind a keyed step, which reads files of that step."""
    pipeline = small(lambda s: s.stateful("kept", Counted(), keys=["key"], schema=OUT))
    pipeline_stream = Stream(pipeline, "kept", OUT, "at")
    dear = pipeline_stream.filter("dear", lambda table: pa.array([True] * table.num_rows))
    dear.sink("cheap")
    dear.window("last", keys=["key"], size_seconds=1, aggregates={"n": count()}).sink("lasts")
    made = program.build(pipeline)
    record = stopped_branches.Branch("kept", "dear", "kept/0", 1, "why").record()
    made = stopped_branches.split(made, [record])
    return Story("branches", folder / "branches", made, offsets(6, 12))


def of_requests(folder: Path) -> Iterator[Action]:
    """Requests with other orders than to run an epoch, and wrong ones."""
    story = Story("letters", folder / "letters", small(letters), offsets(6, 12)).begin()
    numbered = story.program.numbers["numbered/0"]
    chosen = {
        str(e): story.reports[e, n]["partitions"][str(n)]["epochs"][0][-1]
        for e, n in story.asked
        if n == numbered
        and isinstance(story.reports[e, n]["partitions"][str(n)]["epochs"][0][-1], dict)
    }
    for number in (numbered, numbered + 1):
        for known in (chosen, {"2": {"numbered": [[0, 1], []]}}, {"2": {"numbered": [[], []]}}):
            yield story.again(2, number, item={"choices": known})
        yield story.again(2, number, dead_letters=[1, 0])
        yield story.again(1, number, item={"choices": {"1": {"numbered": [[], []]}}})
    foreign = lambda: mock.patch.object(PartitionRunner, "run_here", side_effect=ValueError)  # noqa: E731
    yield story.again(1, 0).within(foreign)
    yield story.again(1, 0, item={"readers": [numbered]})
    yield story.again(1, 0, urgency=host_scheduler.CATCH_UP)
    for number in (0, numbered):
        second = {"lane": host_scheduler.SECOND}
        behind = story.again(2, number, item=second, urgency=host_scheduler.BEHIND)
        yield behind.within(same_interval)
    yield story.again(1, 0, generation=0)
    yield story.again(2, numbered, received=b"")
    received = story.frames[2, numbered]
    yield story.again(2, numbered, received=received[:-1] + b"\0")
    other = bytearray(received)
    yield story.again(2, numbered, received=bytes(other) + received)
    yield story.again(
        2,
        numbered,
        item={"from": 7, "to": 7, "restore_point": 3},
        offsets={"7": {"rows": [0, 1, 1]}},
    )
    yield story.again(2, numbered, item={"plan_epoch": 0})
    yield story.again(1, 0, item={"without": {"numbered": 1}})
    yield story.again(1, 0, store=str(folder / "none"))
    yield story.again(1, 0, memory_bytes_max=1)
    yield story.again(1, 0, memory_bytes_max=1 << 40)
    yield from _of_memory(story)
    yield from _of_durable_input(story, numbered)
    yield from _of_apart(story, numbered)
    yield from _of_branches(folder)
    uncertain = small(lambda s: s.map("same", lambda t: t, schema=s.schema, deterministic=False))
    yield from Story("uncertain", folder / "uncertain", uncertain, offsets(6, 12)).begin().actions()
    late = small(lambda s: s.window("w", keys=["key"], size_seconds=1, aggregates={"n": count()}))
    yield from (
        Story("two epochs", folder / "two", late, offsets(6, 12)).begin().actions(restores=True)
    )
    from_two = Story("unknown", folder / "unknown", small(letters), offsets(6))
    from_two.named[2] = "another digest"
    yield from_two.again(1, 0)
    # the last one: it has states forgotten
    yield story.again(1, 0, finished={str(numbered): 1})


@contextlib.contextmanager
def same_interval() -> Iterator[None]:
    """Where the second lane has shortened the interpreter's switch interval, that is undone."""
    before = sys.getswitchinterval()
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _of_memory(story: Story) -> Iterator[Action]:
    """Blocks that do not fit, and states that are too large."""
    large = {"memory_bytes_max": 1, "received": b"x" * 100}
    yield story.again(1, 0, **large)


def _of_durable_input(story: Story, number: int) -> Iterator[Action]:
    """Frames that are preserved for a partition, and read back."""
    wanted = {"0": [1, 2]}

    def preserve(wanted: Any = wanted, checkpoint: int = 1) -> Any:
        forget_what_is_kept()
        item = {"partition": number, "checkpoint": checkpoint, "frames": wanted}
        request = {"work": [], "preserve": [item]}
        return story.ask(1, number, **request)

    preserve()
    yield Action("preserve", preserve)
    broken = lambda: mock.patch.object(state_files, "save_frames", side_effect=ValueError)  # noqa: E731
    yield Action("preserve, broken", preserve).within(broken)
    yield Action("preserve what is absent", lambda: preserve({"0": [1, 9]}))
    yield story.again(1, number, received=b"", item={"inputs": [1]})


def _of_apart(story: Story, number: int) -> Iterator[Action]:
    apart = {"item": {"apart": {"seconds_max": 60.0, "searches": False}}}
    yield story.again(1, 0, **apart)
    yield story.again(1, number, **apart)

    broken = lambda: mock.patch.object(sandbox._Sandbox, "ask", side_effect=ValueError)  # noqa: E731
    yield story.again(1, 0, **apart).within(broken)

    def dead() -> Any:
        if story.host.runner.sandboxes.idle.empty():
            story.host.runner.sandboxes.prepare()
        one = story.host.runner.sandboxes.idle.get()
        assert isinstance(one, sandbox._Sandbox)
        one.process.kill()
        one.process.wait()
        story.host.runner.sandboxes.idle.put(one)
        with mock.patch.object(Sandboxes, "prepare"):
            return story.again(1, 0, **apart).run()

    yield Action("a sandbox that has ended", dead)

    def wary() -> Any:
        story.host.runner.beware([0])
        refused = story.again(1, 0).run()
        return [refused, story.again(1, 0, **apart).run()]

    yield Action("wary", wary)
    ends = small(lambda s: s.map("ends", lambda table: os._exit(3), schema=s.schema))
    yield Story("ends", story.folder.parent / "ends", ends, offsets(6)).again(1, 0, **apart)


def _of_branches(folder: Path) -> Iterator[Action]:
    story = branched(folder)
    story.begin()
    yield from story.actions()
    lost = story.program.numbers["dear~branch/0"]
    for path in (story.folder / "outputs" / "dear~branch").glob("*-000000002.parquet"):
        path.rename(path.with_suffix(".gone"))
    yield story.again(2, lost)
    whole = Story("branch left out", folder / "left", small(lambda s: _with_branch(s)), offsets(6))
    yield whole.begin().again(1, 0)
    number = whole.program.numbers["kept/0"]
    yield whole.again(1, number, item={"without": {"dear": 1}})


def _with_branch(stream: Stream) -> Stream:
    kept = stream.stateful("kept", Counted(), keys=["key"], schema=OUT)
    kept.filter("dear", lambda table: pa.array([True] * table.num_rows)).sink("cheap")
    return kept


def of_processes(folder: Path) -> Iterator[Action]:
    """The start of a host, its connections, and what it starts threads for."""
    folder.mkdir(parents=True)
    yield Action("main", lambda: _begun(folder), raises=True)
    yield Action("serve", _served, raises=True)
    yield Action("listen", _listened, raises=True)
    yield Action("refuse", _refused, raises=True)
    yield Action("threads", _threaded, raises=True)
    yield Action("sampler", lambda: _sampled(folder), raises=True)
    for kind, lines in CONTAINERS.items():
        yield Action(
            f"container {kind}",
            lambda k=kind, given=lines: _limited(folder / k, *given),
            raises=True,
        )
    features = "Features : sve bf16\n"
    yield Action("machine", lambda: native_libraries.described("arm", features), raises=True)
    yield Action("sandboxes", _sandboxes, raises=True)


def _begun(folder: Path) -> Any:
    """A host that begins, and ends at once."""
    watch = Watchdog(memory := bytearray(watchdog.SIZE))
    watch.begin(0, 1, "step")
    arguments = ["host", str(folder / "s"), str(os.getpid()), str(folder / "note"), memory.hex()]
    with (
        mock.patch.object(sys, "argv", arguments),
        mock.patch.object(host_socket, "serve"),
        mock.patch.object(os, "_exit"),
        mock.patch.object(gc, "freeze"),
        mock.patch.object(gc, "set_threshold"),
        mock.patch.object(print_forwarding, "install"),
        mock.patch.object(Sandboxes, "prepare"),
    ):
        host.main()


def _served() -> Any:
    """The socket of a host whose parent has ended at the second look."""
    looks = iter([[], [], [1]])
    with tempfile.TemporaryDirectory() as short:
        path = Path(short, "host", "s")

        def look(*_: Any) -> Any:
            path.unlink(missing_ok=True)
            return [next(looks)]

        with (
            mock.patch.object(select, "select", look),
            mock.patch.object(ConnectionThreads, "_run"),
        ):
            (path.parent).mkdir()
            (path.parent / "x.note").touch()
            host_socket.serve(path, os.getppid(), lambda _: True, "*.note")


def _listened() -> Any:
    """A connection of the right process."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        return host_socket.is_from(theirs, os.getpid())


def _refused() -> Any:
    header = json.dumps({"executor": "7"}).encode()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(struct.pack(">i", len(header)) + header + struct.pack(">q", 3) + b"abc")
        host_socket._refuse(theirs, 1)
        return ours.recv(1000)


def _threaded() -> Any:
    """A request over a connection, by the code of a host's threads."""
    served = host.Host(os.getpid())
    ours, theirs = socket.socketpair()
    header = json.dumps({"executor": "7", "work": []}).encode()
    with ours, theirs:
        ours.sendall(struct.pack(">i", len(header)) + header + struct.pack(">q", 0))
        host._serve(served, theirs)
    return "done"


def _sampled(folder: Path) -> Any:
    sampler = StackSampler("host", folder / "x.stacks")
    sampler.look()
    for one in list(sampler.used):
        sampler.used[one] = 0
    sampler.look()
    sampler.write()
    with mock.patch.dict(os.environ, {stack_sampler.FOLDER: str(folder / "none")}):
        stack_sampler.begin("host", refuses=False)
    with (
        mock.patch.dict(os.environ, {stack_sampler.FOLDER: str(folder)}),
        mock.patch.object(StackSampler, "start"),
    ):
        stack_sampler.begin("host")


MOUNT = "30 1 0:26 / {mount} rw - {kind} cgroup rw,memory\n"
CONTAINERS = {
    "v2": ("cgroup2", "0::/a\n", "memory.max", "java\0-Xmx1g\0M"),
    "v1": ("cgroup", "4:memory:/a\n", "memory.limit_in_bytes", "java\0M"),
}


def _limited(folder: Path, kind: str, groups: str, file: str, command: str) -> Any:
    for name in ("self", "5", "mount/a"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "self/cgroup").write_text(groups)
    (folder / "self/mountinfo").write_text(MOUNT.format(mount=folder / "mount", kind=kind))
    (folder / "5/cmdline").write_text(command)
    (folder / "mount/a" / file).write_text(f"{2**31}\n")
    (folder / "mount" / file).write_text("max\n")
    return memory_gauge.allowed_bytes(5, folder)


def _sandboxes() -> Any:
    """The thread that starts sandboxes."""
    with mock.patch.object(threading, "Thread"):
        Sandboxes().start()
    with mock.patch.object(threading, "Thread"):
        ConnectionThreads(socket.socket(), lambda _: True).start()
    with mock.patch.object(threading, "Thread"):
        state_files.Checkpoints().start()
    with mock.patch.object(threading, "Thread"):
        StackSampler("host", Path("x")).start()
