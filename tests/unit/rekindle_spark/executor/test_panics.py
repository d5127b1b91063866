"""Whatever is raised in an executor's host, also outside of Exception: it is told, no thread dies.

A panic of a native library (pyo3's PanicException) is a BaseException, as `Panic` is here. It is
raised where each of our functions is entered, one after the other, and in the place of each call of
native code, as if the library did so. Both are found by themselves: functions by running, calls by
walking the source of all modules that a host imports (`call_sites`).
"""

import ast
import decimal
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import call_sites
import polars as pl
import pyarrow as pa
import pytest

# builders of this suite, on its path
from call_sites import Site
from host_world import SCHEMA, Desk, Numbers

import rekindle_spark
from rekindle import interrupts
from rekindle.model.errors import StepError
from rekindle_spark.checkpoint import state_files
from rekindle_spark.executor import host, host_scheduler, partition, sandbox
from rekindle_spark.executor.host_socket import ConnectionThreads
from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, count, largest
from rekindle_spark.user_code import dead_letter_sieve
from rekindle_spark.user_code.dead_letter_sieve import Sieve, Tolerance

OURS = os.path.dirname(rekindle_spark.__file__)
# They serve the connection itself, and call no library.
OUTSIDE = {"_serve", "_answered", "yields", "yield_to_others"}


class Panic(BaseException):
    """What no `except Exception` catches."""


@contextmanager
def raising_in(code: CodeType) -> Iterator[None]:
    """Inside, the first call of a function raises before it does anything."""

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is code:
            sys.setprofile(None)
            raise Panic("operator does not support primitive `Int256`")

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


def functions_of(action: Callable[[], object]) -> list[CodeType]:
    """Our functions that an action calls in this thread."""
    found: dict[CodeType, None] = {}

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            found[frame.f_code] = None

    sys.setprofile(look)
    try:
        action()
    finally:
        sys.setprofile(None)
    return [code for code in found if code.co_name not in OUTSIDE]


class Last(StatefulOperator):
    value_schema = pa.schema([("seen", pa.int64())])

    def handle(self, key, rows, value):
        value.update((len(rows),))
        return [(row["at"], key[0]) for row in rows]


def everything() -> Pipeline:
    """Each kind of step: partitions 0 to 4."""
    built = Pipeline("everything")
    rows = built.source("rows", Numbers())
    same = rows.map("same", lambda table: table, schema=SCHEMA)
    some = same.filter("some", lambda table: pa.array([True] * table.num_rows))
    some.sink("direct")
    sums = {"n": count(), "latest": largest("at")}
    some.window("sums", keys=["key"], size_seconds=5, aggregates=sums).sink("windows")
    some.top("best", by="at", count=2).sink("tops")
    some.join("pairs", rows, keys=["key"], within_seconds=3).sink("joined")
    some.stateful("last", Last(), keys=["key"], schema=SCHEMA).sink("values")
    return built


@dataclass
class Executor:
    """A host that is asked over a socket, as a task does."""

    folder: Path
    program: Program = field(default_factory=lambda: program.build(everything()))

    def __post_init__(self) -> None:
        self.desk = Desk(self.folder, program=self.program)
        self.desk.store.make_outputs(["direct", "windows", "tops", "joined", "values"])

    def ask(self, number: int, received: bytes = b"") -> dict[str, Any]:
        item = {"partition": number, "plan_epoch": 1, "from": 1, "to": 1, "counts": [1, 1]}
        item |= {"readers": None, "finished": 0, "restore_point": 0, "inputs": []}
        request = {
            "program": self.desk.named_program,
            "generation": 1,
            "plan_epoch": 1,
            "store": str(self.folder),
            "urgency": 0,
            "dead_letters": [1, 0],
            "checkpoint": None,
            "attempt": 1,
            "executor": "7",
            "held": list(range(len(self.program.owner))),
            "work": [item],
            "offsets": {"1": {"rows": [0, 20, 20_000_000]}},
        }
        header = json.dumps(request).encode()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            parts = [struct.pack(">i", len(header)), header, struct.pack(">q", len(received))]
            ours.sendall(b"".join([*parts, received]))
            host._serve(self.desk.host, theirs)
            ours.settimeout(5)
            with ours.makefile("rb") as reader:
                answer = reader.read(struct.unpack(">i", reader.read(4))[0])
                (targets,) = struct.unpack(">i", reader.read(4))
                self.blocks = {}
                for _ in range(targets):
                    target, size = struct.unpack(">ii", reader.read(8))
                    self.blocks[target] = reader.read(size)
        report: dict[str, Any] = json.loads(answer)
        return report


@pytest.mark.parametrize("step", ["rows", "sums", "best", "pairs", "last"])
def test_whatever_function_panics_the_task_is_answered_with_what_was_raised(
    step: str, tmp_path: Path
) -> None:
    executor = Executor(tmp_path)
    number = executor.program.numbers[f"{step}/0"]
    received = b""
    if step != "rows":
        executor.ask(executor.program.numbers["rows/0"])
        received = executor.blocks[number]
    executor.ask(number, received)  # what is called only once is not asked for below
    report = executor.ask(number, received)
    assert report["partitions"][str(number)]["status"] == "ok"
    codes = functions_of(lambda: executor.ask(number, received))
    assert len(codes) > 20
    for code in codes:
        with raising_in(code):
            report = executor.ask(number, received)
        outcome = report.get("partitions", {}).get(str(number), {})
        told = outcome.get("what", report.get("text", ""))
        assert "Panic" in told or _is_tolerated(code, report), code.co_qualname
        assert outcome.get("where", step) or report["status"] == "failed"
    assert executor.ask(number, received)["partitions"][str(number)]["status"] == "ok"


def native_calls() -> frozenset[Site]:
    """The calls of native code in all that a host imports."""
    modules = call_sites.imported_by("rekindle_spark.executor.host")
    return frozenset().union(*map(call_sites.sites_in, modules))


def test_calls_of_native_code_are_found_wherever_a_host_has_them() -> None:
    found = {(os.path.basename(site.file), site.text) for site in native_calls()}
    for expected in (
        ("partition.py", "pa.Table.from_batches"),
        ("partition.py", "table.filter"),
        ("grouping.py", "pc.array_sort_indices"),
        ("sink_files.py", "pq.write_table"),
        ("table_delta.py", "pl.from_arrow"),
        ("state_files.py", "pa.ipc.new_stream"),
        ("host.py", "polars.DataFrame({'warm': [1]}).group_by"),
    ):
        assert expected in found, expected
    ours = {text for _, text in found if text.startswith(("frames.", "partition.", "poison."))}
    assert not ours


@pytest.mark.parametrize(
    ("step", "least"), [("rows", 150), ("sums", 120), ("best", 90), ("pairs", 120), ("last", 110)]
)
def test_whatever_call_of_native_code_panics_the_task_is_answered_with_what_was_raised(
    step: str, least: int, tmp_path: Path
) -> None:
    executor = Executor(tmp_path)
    number = executor.program.numbers[f"{step}/0"]
    received = b""
    if step != "rows":
        executor.ask(executor.program.numbers["rows/0"])
        received = executor.blocks[number]
    executor.ask(number, received)
    reached = call_sites.reached_by(lambda: executor.ask(number, received), native_calls())
    inside = [site for site in reached if not _serves_the_connection(site)]
    assert len(inside) >= least
    for site in inside:
        with call_sites.raising_at(site, Panic("operator does not support `Int256`")):
            report = executor.ask(number, received)
        outcome = report.get("partitions", {}).get(str(number), {})
        told = outcome.get("what", report.get("text", ""))
        assert "Panic" in told, str(site)
        assert outcome.get("where", step) or report["status"] == "failed", str(site)
    assert executor.ask(number, received)["partitions"][str(number)]["status"] == "ok"


def test_a_panic_of_the_connection_itself_comes_to_the_thread_that_serves_it(
    tmp_path: Path,
) -> None:
    executor = Executor(tmp_path)
    number = executor.program.numbers["rows/0"]
    reached = call_sites.reached_by(lambda: executor.ask(number), native_calls())
    outside = [site for site in reached if _serves_the_connection(site)]
    assert outside
    for site in outside:
        with call_sites.raising_at(site, Panic()), pytest.raises(Panic):
            executor.ask(number)
    assert executor.ask(number)["partitions"][str(number)]["status"] == "ok"


def _serves_the_connection(site: Site) -> bool:
    """Whether a call is outside of what answers a request: its thread catches what it raises."""
    lines = [
        range(code.co_firstlineno, max(line or 0 for *_, line in code.co_lines()) + 1)
        for code in (
            host._serve.__code__,
            host_scheduler.yields.__code__,
            host_scheduler.yield_to_others.__code__,
        )
        if code.co_filename == site.file
    ]
    return any(site.line in span for span in lines)


# The threads that a host starts, each with the test that a panic does not end it unseen.
THREADS = {
    ("stack_sampler.py", "self._run"): "only where REKINDLE_PROFILE asks for it",
    ("sandbox.py", "self._start_each"): "test_the_thread_that_starts_sandboxes_outlives_a_panic",
    ("host_socket.py", "self._run"): "test_a_thread_that_serves_outlives_a_panic",
    (
        "state_files.py",
        "self._write_all",
    ): "test_the_thread_of_checkpoints_outlives_a_panic_anywhere",
}


def test_every_thread_of_a_host_is_known_here() -> None:
    found = {}
    for module in call_sites.imported_by("rekindle_spark.executor.host"):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if ast.unparse(call.func).endswith("Thread"):
                (target,) = (key.value for key in call.keywords if key.arg == "target")
                found[os.path.basename(str(module.__file__)), ast.unparse(target)] = module
    assert found.keys() == THREADS.keys()
    tests = [name for name in THREADS.values() if name.startswith("test_")]
    assert all(name in globals() for name in tests)


def test_the_thread_that_starts_sandboxes_outlives_a_panic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sandboxes, starts = sandbox.Sandboxes(), []

    def start() -> Any:
        starts.append(None)
        raise Panic("no thread")

    monkeypatch.setattr(sandbox, "_Sandbox", start)
    sandboxes.start()
    trial = sandbox.SandboxTrial(
        b"", partition.PartitionWork(0, 1, 1), partition.PartitionState(0, None), b"", 1.0, 0
    )
    for number in (1, 2):
        with pytest.raises(RuntimeError, match="no process can be started: no thread"):
            sandboxes._ask(trial)
        assert len(starts) == number


def test_a_sandbox_that_has_a_part_of_a_trial_is_ended() -> None:
    ended = []

    class Broken:
        def ask(self, *given: Any) -> Any:
            raise Panic(len(given))

        def end(self) -> int:
            ended.append(self)
            return 0

    sandboxes = sandbox.Sandboxes()
    sandboxes.idle.put(broken := Broken())  # type: ignore[arg-type]
    trial = sandbox.SandboxTrial(
        b"", partition.PartitionWork(0, 1, 1), partition.PartitionState(0, None), b"", 1.0, 0
    )
    with pytest.raises(Panic):
        sandboxes._ask(trial)
    assert ended == [broken]


def _is_tolerated(code: CodeType, report: dict[str, Any]) -> bool:
    """The report of a panic is made by these functions too: when they go, the next one has it."""
    return "Panic" in json.dumps(report) and code.co_qualname == "raised"


def test_the_thread_of_checkpoints_outlives_a_panic_anywhere(tmp_path: Path) -> None:
    executor = Executor(tmp_path)
    chain = executor.program.owner[executor.program.numbers["last/0"]]
    values = {(f"key-{n}",): ((n,), 0) for n in range(3000)}
    held = chain.root.function.initial()
    state = partition.PartitionState(
        0, type(held)(values, held.waiting, held.due_at, held.purge_at, held.late_rows)
    )
    files = executor.desk.store.files
    writing = state_files.Writing(files, "checkpoints/1.state", chain, 4, 1, 1, 0, state)
    checkpoints = state_files.Checkpoints()
    write = lambda: checkpoints.write([writing])  # noqa: E731
    codes = [code for code in functions_of(write) if code.co_qualname != "Checkpoints.write"]
    assert len(codes) > 10
    for code in codes:
        with raising_in(code):
            (done,) = write()
        assert "Panic" in done.get("failed", "") or "bytes" in done, code.co_qualname
    assert "failed" not in write()[0]


def test_a_panic_of_polars_in_a_map_is_a_dead_letter_or_the_steps_fault() -> None:
    def add_wei(table: pa.Table) -> pa.Table:
        wei = pa.array([decimal.Decimal(1)] * table.num_rows, pa.decimal256(76, 0))
        pl.from_arrow(table.append_column("wei", wei))
        return table

    rows = Numbers().read(0, 2)
    sieve = Sieve("add-wei", "rows/0", 7, ["at"], Tolerance(1, 10))
    assert sieve.run(rows, add_wei).num_rows == 0
    (error,) = {letter["dead_letter_error"][0].as_py() for letter in sieve.letters}
    assert error.startswith("raised PanicException: operator does not support")
    with pytest.raises(StepError, match=r"step add-wei: raised PanicException.*at=1970"):
        Sieve("add-wei", "rows/0", 7, ["at"], dead_letter_sieve.STRICT).run(rows, add_wei)


def interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def handled_by(handler: interrupts.Handler) -> Iterator[None]:
    """SIGINT has this handler; a shell that runs the tests in its background has it ignored."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_a_function_is_the_users_own() -> None:
    with handled_by(signal.default_int_handler):  # as in a user's test
        with pytest.raises(KeyboardInterrupt):
            dead_letter_sieve.attempt(interrupt)
        with pytest.raises(KeyboardInterrupt), interrupts.raised():  # as in a command
            dead_letter_sieve.attempt(lambda: signal.raise_signal(signal.SIGINT))


def told_interruption() -> str:
    """What is said of a function that raises KeyboardInterrupt."""
    try:
        _, error = dead_letter_sieve.attempt(interrupt)
    except KeyboardInterrupt:  # it would end the whole run of the tests
        return "passed on"
    assert error is not None
    return dead_letter_sieve.raised(error)


def test_where_ctrl_c_cannot_come_a_function_has_raised_it_itself() -> None:
    class OfAGuard(BaseException):
        pass

    with handled_by(signal.default_int_handler), ThreadPoolExecutor(1) as threads:  # as in a host
        assert threads.submit(told_interruption).result() == "raised KeyboardInterrupt"
    with handled_by(interrupts.raising(OfAGuard)):  # as under a guard
        assert told_interruption() == "raised KeyboardInterrupt"


def test_an_error_without_a_text_in_utf_8_is_told() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert dead_letter_sieve.raised(Odd()) == "raised Odd: (its text raised ValueError)"
    assert dead_letter_sieve.raised(ValueError("\ud800")) == r"raised ValueError: \ud800"


def test_a_row_of_what_python_has_no_value_for_is_shown() -> None:
    text = pa.array([b"\xff"]).view(pa.string())
    far = pa.array([2**60], pa.date64())
    table = pa.table({"text": text, "far": far})
    with pytest.raises(StepError, match=r"row 0, text=b'.xff', far="):
        Sieve("s", "rows/0", 7, [], dead_letter_sieve.STRICT).run(table, lambda _: 1 / 0)


def test_a_thread_that_serves_outlives_a_panic(capsys: pytest.CaptureFixture[str]) -> None:
    served = threading.Event()

    def serve(connection: socket.socket) -> bool:
        connection.close()
        if served.is_set():
            return True
        served.set()
        raise Panic

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(b"\0rekindle-test-%d" % os.getpid())
    listener.listen(4)
    ConnectionThreads(listener, serve).start()
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(listener.getsockname())
            assert client.recv(1) == b""
    printed = ""
    limit = time.monotonic() + 60
    while "Panic" not in printed:  # its thread prints after it has let go of the connection
        assert time.monotonic() < limit
        printed += capsys.readouterr().err
        time.sleep(0.01)
