"""Whatever is raised in an executor's host, also outside of Exception: it is told, no thread dies.

A panic of a native library (pyo3's PanicException) is a BaseException, as `Panic` is here. It is
raised where each of our functions is entered, one after the other, as if a library did so in there.
"""

import decimal
import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

# builders of this suite, on its path
from host_world import SCHEMA, Desk, Numbers

import rekindle_spark
from rekindle.errors import StepError
from rekindle_spark import host, partition, poison, program, states
from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline import Pipeline, count, largest
from rekindle_spark.poison import Sieve, Tolerance
from rekindle_spark.program import Program
from rekindle_spark.serving import Threads

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


def _is_tolerated(code: CodeType, report: dict[str, Any]) -> bool:
    """The report of a panic is made by these functions too: when they go, the next one has it."""
    return "Panic" in json.dumps(report) and code.co_qualname == "raised"


def test_the_thread_of_checkpoints_outlives_a_panic_anywhere(tmp_path: Path) -> None:
    executor = Executor(tmp_path)
    chain = executor.program.owner[executor.program.numbers["last/0"]]
    values = {(f"key-{n}",): ((n,), 0) for n in range(3000)}
    held = chain.root.function.initial()
    state = partition.State(
        0, type(held)(values, held.waiting, held.due_at, held.purge_at, held.late_rows)
    )
    files = executor.desk.store.files
    writing = states.Writing(files, "checkpoints/1.state", chain, 4, 1, 1, 0, state)
    checkpoints = states.Checkpoints()
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
        Sieve("add-wei", "rows/0", 7, ["at"], poison.STRICT).run(rows, add_wei)


def test_ctrl_c_in_a_function_is_the_users_own() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        poison.attempt(interrupt)


def test_an_error_without_a_text_in_utf_8_is_told() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert poison.raised(Odd()) == "raised Odd: (its text raised ValueError)"
    assert poison.raised(ValueError("\ud800")) == r"raised ValueError: \ud800"


def test_a_row_of_what_python_has_no_value_for_is_shown() -> None:
    text = pa.array([b"\xff"]).view(pa.string())
    far = pa.array([2**60], pa.date64())
    table = pa.table({"text": text, "far": far})
    with pytest.raises(StepError, match=r"row 0, text=b'.xff', far="):
        Sieve("s", "rows/0", 7, [], poison.STRICT).run(table, lambda _: 1 / 0)


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
    Threads(listener, serve).start()
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(listener.getsockname())
            assert client.recv(1) == b""
    assert "Panic" in capsys.readouterr().err
