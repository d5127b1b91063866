"""Partitions that run in a process of their own: what they give, and what their deaths tell."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from number_rows import SCHEMA, NumberRows
from pyspark import cloudpickle

from rekindle.model.errors import StepError
from rekindle_spark.executor import frames, partition, sandbox
from rekindle_spark.executor.partition import PartitionOutcome, PartitionWork
from rekindle_spark.executor.sandbox import Died, FunctionProcess, Reply, Sandboxes, SandboxTrial
from rekindle_spark.operators import FINAL_WATERMARK, StatefulOperator
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline, Stream
from rekindle_spark.user_code import print_forwarding, watchdog
from rekindle_spark.user_code.dead_letter_sieve import Tolerance
from rekindle_spark.user_code.watchdog import Watchdog

MIB = 1 << 20
WORK_SECONDS_MAX = 50.0
Function = Callable[[pa.Table], pa.Table]
# the sandbox does not know these modules
for module in (__name__, "number_rows"):
    cloudpickle.register_pickle_by_value(sys.modules[module])


class Sums(StatefulOperator):
    """Adds up a key's sizes, and ends its process at size 33."""

    value_schema = pa.schema([("sum", pa.int64())])

    def handle(self, key, rows, value):  # type: ignore[no-untyped-def]
        for row in rows:
            if row["size"] == 33:
                os._exit(3)
            value.update(((value.get() or (0,))[0] + row["size"],))
            yield (row["at"], key[0], value.get()[0])


def at_33(harm: Callable[[], object]) -> Function:
    """A function that does harm where it gets size 33."""

    def function(table: pa.Table) -> pa.Table:
        if 33 in table["size"].to_pylist():
            harm()
        return table

    return function


class Needs:
    """Cannot be loaded unless a file is there."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.read_text, (self.file,)


def end_by_signal() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def sleep_for_ever() -> None:
    time.sleep(1_000)


def work_until_three(count: Callable[[], int]) -> None:
    """On a busy machine that takes far longer than three seconds."""
    end = time.monotonic() + WORK_SECONDS_MAX
    while count() < 3 and time.monotonic() < end:
        pass


def work_for_a_second() -> None:
    begin = time.process_time()
    while time.process_time() < begin + 1.0:
        pass


def work_for_ever() -> None:
    while True:
        pass


def loud(table: pa.Table) -> pa.Table:
    print(f"{table.num_rows} rows begin with {table['key'][0]}")
    return table


def hoard() -> None:
    hoarded = []
    while True:
        hoarded.append(b"x" * MIB)


def built(attach: Callable[[Stream], Stream]) -> Program:
    pipeline = Pipeline("numbers")
    attach(pipeline.source("rows", NumberRows())).sink("out")
    return program.build(pipeline)


def mapped(function: Function, *, dead_letters: bool) -> Program:
    return built(
        lambda rows: rows.map("checked", function, schema=SCHEMA, dead_letters=dead_letters)
    )


def trial(
    made: Program, *, number: int = 0, blocks: bytes = b"", seconds: float = 60.0
) -> SandboxTrial:
    pickled = cloudpickle.dumps(made)
    return SandboxTrial(
        pickled,
        PartitionWork(number, 1, 3, 20, 40, FINAL_WATERMARK, tolerance=Tolerance(3, 100)),
        partition.initial(made.owner[number]),
        blocks,
        seconds,
        2_000 * MIB,
        digest=sha256(pickled).hexdigest(),
    )


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[Sandboxes]:
    """With one that is ready, as the host that takes the place of a dead one has."""
    made = Sandboxes()
    made.start()
    made.run(calm := mapped(lambda table: table, dead_letters=False), trial(calm), searches=False)
    yield made
    while not made.idle.empty():
        idle = made.idle.get()
        assert isinstance(idle, sandbox._Sandbox)
        idle.end()


def sizes(outcome: PartitionOutcome, output: str) -> list[int]:
    found: list[int] = outcome.sinks[output].table["size"].to_pylist()
    return found


def test_apart_a_partition_gives_what_it_gives_in_a_host(sandboxes: Sandboxes) -> None:
    made = mapped(lambda table: table.slice(3), dead_letters=False)
    asked = trial(made)
    outcome, deaths, _ = sandboxes.run(made, asked, searches=False)
    assert outcome == partition.run(made, asked.work, asked.state, [])
    assert deaths == 0


def test_what_a_function_prints_apart_counts_as_printed_in_the_host(sandboxes: Sandboxes) -> None:
    made = built(lambda rows: rows.map("loud", loud, schema=SCHEMA))
    sandboxes.run(made, trial(made), searches=False)
    assert print_forwarding.taken() == [["loud", "rows/0", 3, "20 rows begin with key-0"]]
    assert print_forwarding.taken() == []


def test_a_function_that_raises_apart_is_a_fault_of_its_step_as_in_a_host(
    sandboxes: Sandboxes,
) -> None:
    made = mapped(at_33(lambda: 1 / 0), dead_letters=False)
    with pytest.raises(StepError, match=r"raised ZeroDivisionError: .* source row 33"):
        sandboxes.run(made, trial(made), searches=True)


def test_a_trial_for_which_others_wait_ends_at_its_first_death(sandboxes: Sandboxes) -> None:
    made = mapped(at_33(end_by_signal), dead_letters=True)
    with pytest.raises(Died, match="step checked: ended its process with SIGSEGV, at epoch 3 of"):
        sandboxes.run(made, trial(made), searches=False)


def test_the_record_on_which_a_function_ends_its_process_is_named(sandboxes: Sandboxes) -> None:
    made = mapped(at_33(end_by_signal), dead_letters=False)
    with pytest.raises(Died) as caught:
        sandboxes.run(made, trial(made), searches=True)
    words = "step checked: ended its process with SIGSEGV, at epoch 3 of rows/0, source row 33, at="
    assert str(caught.value).startswith(words)
    assert "dead_letters=True" in str(caught.value)


def test_with_dead_letters_that_record_is_left_out_and_kept_beside(sandboxes: Sandboxes) -> None:
    made = mapped(at_33(end_by_signal), dead_letters=True)
    outcome, deaths, _ = sandboxes.run(made, trial(made), searches=True)
    assert sizes(outcome, "out") == [size for size in range(20, 40) if size != 33]
    assert sizes(outcome, "checked.dead-letters") == [33]
    letters = outcome.sinks["checked.dead-letters"].table
    assert letters["dead_letter_error"].to_pylist() == ["ended its process with SIGSEGV"]
    assert deaths > 1


def test_a_row_on_which_handle_ends_its_process_is_left_out_and_its_key_keeps_its_value(
    sandboxes: Sandboxes,
) -> None:
    made = built(
        lambda rows: rows.stateful("sums", Sums(), keys=["key"], schema=SCHEMA, dead_letters=True)
    )
    source = trial(made)
    blocks = partition.run(made, source.work, source.state, []).blocks
    given = b"".join(block for _, block in blocks)
    outcome, _, _ = sandboxes.run(made, trial(made, number=1, blocks=given), searches=True)
    assert sizes(outcome, "sums.dead-letters") == [33]
    key_3 = [n for n in range(20, 40) if n % 5 == 3 and n != 33]
    assert sum(key_3) in sizes(outcome, "out")
    assert outcome.state.operator.values["key-3",][0] == (sum(key_3),)


def test_a_function_that_takes_too_long_without_dead_letters_is_named_at_once(
    sandboxes: Sandboxes,
) -> None:
    made = mapped(at_33(sleep_for_ever), dead_letters=False)
    with pytest.raises(Died) as caught:
        sandboxes.run(made, trial(made, seconds=0.3), searches=True)
    words = (
        r"step checked: took longer than 0\.3 s, at epoch 3 of rows/0, in \w+ \(.+\.py:\d+\); mend"
    )
    assert re.match(words, str(caught.value))


def test_the_host_is_told_while_a_trial_gets_cpu_time_and_not_while_it_waits(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    signs, found = tmp_path / "signs", tmp_path / "found"

    def signs_during(harm: Callable[[Callable[[], int]], object]) -> int:
        def count_of(before: int) -> int:
            return signs.stat().st_size - before

        def counted() -> None:
            before = count_of(0)
            harm(lambda: count_of(before))
            found.write_text(f"{count_of(before)}")

        def give_sign() -> None:
            with signs.open("ab") as file:
                file.write(b".")

        made = mapped(at_33(counted), dead_letters=False)
        sandboxes.run(made, trial(made), searches=False, sign=give_sign)
        return int(found.read_text())

    signs.touch()
    assert signs_during(lambda _: time.sleep(4.0)) <= 1, "one may be for what was before"
    assert signs_during(work_until_three) >= 3


def test_a_search_is_limited_by_how_long_calls_hang_and_not_by_how_long_processes_take() -> None:
    made = mapped(at_33(end_by_signal), dead_letters=True)
    note = Watchdog(seconds_max=2.0)
    note.begin(0, 3, "rows")
    note.calling("checked")
    died = Reply(b"", watchdog.SIGNALLED + signal.SIGSEGV, bytes(note.memory))
    hung = replace(died, exit_code=watchdog.TOOK_TOO_LONG)
    assert (sandbox.hung_seconds(died), sandbox.hung_seconds(hung)) == (0.0, 2.0)
    asked = trial(made, seconds=2.0)
    assert sandbox.following(made, asked, died, 20.0) is not None
    assert sandbox.following(made, asked, died, 22.0) is None


def test_a_trial_that_takes_more_memory_than_there_is_left_is_ended(sandboxes: Sandboxes) -> None:
    made = mapped(at_33(hoard), dead_letters=False)
    asked = trial(made)
    small = SandboxTrial(asked.program, asked.work, asked.state, b"", 60.0, 200 * MIB)
    with pytest.raises(Died, match="step checked: used more than 200 MiB of memory, at epoch 3"):
        sandboxes.run(made, small, searches=False)


def test_a_function_that_ends_the_sandbox_is_blamed_and_the_next_trial_gets_another(
    sandboxes: Sandboxes,
) -> None:
    def end_parent() -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    made = mapped(at_33(end_parent), dead_letters=False)
    with pytest.raises(Died, match="ended its process with SIGKILL"):
        sandboxes.run(made, trial(made), searches=True)
    calm = mapped(lambda table: table, dead_letters=False)
    sandboxes.prepare()
    outcome, _, _ = sandboxes.run(calm, trial(calm), searches=False)
    assert outcome.rows == 20


@pytest.fixture
def process(sandboxes: Sandboxes) -> Iterator[FunctionProcess]:
    made = FunctionProcess(sandboxes)
    yield made
    if made.sandbox is not None:
        made.sandbox.end()


def run(process: FunctionProcess, made: Program, *, seconds: float = 60.0) -> PartitionOutcome:
    asked = trial(made, seconds=seconds)
    return process.run(made, asked)[0]


def test_beside_a_host_a_partition_gives_what_it_gives_in_it_each_time(
    process: FunctionProcess,
) -> None:
    made = mapped(lambda table: table.slice(3), dead_letters=False)
    expected = partition.run(made, trial(made).work, trial(made).state, [])
    assert [run(process, made) for _ in range(3)] == [expected] * 3


def test_the_process_beside_a_host_stays_and_loads_a_program_once(process: FunctionProcess) -> None:
    def tell_process(table: pa.Table) -> pa.Table:
        print(f"loaded {id(tell_process)} by {os.getpid()}")
        return table

    made = mapped(tell_process, dead_letters=False)
    other = mapped(lambda table: tell_process(table), dead_letters=False)
    first, second, printed = trial(made), trial(other), list[str]()
    for asked in (first, first, second, first):
        process.run(made, asked)
        printed += [line for *_, line in print_forwarding.taken()]
    assert printed[0] == printed[1]
    assert len({line.split(" by ")[1] for line in printed}) == 1


def test_a_function_that_ends_the_process_beside_is_blamed_and_others_go_on(
    process: FunctionProcess,
) -> None:
    calm = mapped(lambda table: table, dead_letters=False)
    expected = run(process, calm)
    for harm, how in (
        (end_by_signal, "ended its process with SIGSEGV"),
        (lambda: os._exit(0), "ended its process with exit code 0"),
        (sleep_for_ever, r"took longer than 0\.5 s"),
        (work_for_ever, r"took longer than 0\.5 s"),
        (hoard, r"used more than 2\d\d\d MiB of memory"),
    ):
        made = mapped(at_33(harm), dead_letters=False)
        seconds = 0.5 if how.startswith("took") else 0.0
        with pytest.raises(
            Died, match=rf"step checked: {how}, at epoch 3 of rows/0, in "
        ) as caught:
            run(process, made, seconds=seconds)
        assert caught.value.epoch == 3
        assert run(process, calm) == expected


def test_a_function_that_raises_beside_is_a_fault_of_its_step_and_the_process_stays(
    process: FunctionProcess,
) -> None:
    made = mapped(at_33(lambda: 1 / 0), dead_letters=False)
    asked = trial(made)
    for _ in range(2):
        with pytest.raises(StepError, match=r"raised ZeroDivisionError: .* source row 33"):
            process.run(made, asked)
    assert process.loaded == asked.digest


def test_a_sandbox_that_ends_with_its_function_process_is_replaced(
    process: FunctionProcess,
) -> None:
    def end_parent() -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1_000)

    calm = mapped(lambda table: table, dead_letters=False)
    with pytest.raises(Died):
        run(process, mapped(at_33(end_parent), dead_letters=False))
    assert run(process, calm).rows == 20


def test_a_function_process_that_the_kernel_has_taken_while_it_did_nothing_is_nobodys_fault(
    process: FunctionProcess,
) -> None:
    made = mapped(lambda table: table, dead_letters=False)
    asked = trial(made)
    expected, _ = process.run(made, asked)
    sandbox_pid = process.sandbox.process.pid if process.sandbox else 0
    (child,) = Path(f"/proc/{sandbox_pid}/task/{sandbox_pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    assert process.run(made, asked)[0] == expected
    os.kill(sandbox_pid, signal.SIGKILL)
    assert process.run(made, asked)[0] == expected


def test_a_program_that_cannot_be_loaded_once_is_loaded_the_next_time(
    process: FunctionProcess, tmp_path: Path
) -> None:
    made = mapped(lambda table: table, dead_letters=False)
    asked = replace(trial(made), digest="once")
    broken = replace(asked, program=cloudpickle.dumps(Needs(tmp_path / "there")))
    with pytest.raises(RuntimeError, match="FileNotFoundError"):
        process.run(made, broken)
    assert process.run(made, asked)[0].rows == 20


def test_what_a_function_forks_gives_no_answer_of_its_own(process: FunctionProcess) -> None:
    def fork(table: pa.Table) -> pa.Table:
        if not os.fork():
            table = table.slice(0, 1)
        return table

    made = mapped(fork, dead_letters=False)
    asked = trial(made)
    assert [process.run(made, asked)[0].sinks["out"].table.num_rows for _ in range(3)] == [20] * 3


def test_a_function_process_that_has_grown_is_replaced_and_nobody_is_blamed(
    process: FunctionProcess,
) -> None:
    kept = list[bytes]()

    def keep_more(table: pa.Table) -> pa.Table:
        kept.append(b"x" * (60 * MIB))
        print(os.getpid())
        return table

    made = mapped(keep_more, dead_letters=False)
    asked = replace(trial(made), memory_bytes_max=160 * MIB)
    for _ in range(8):
        assert process.run(made, asked)[0].rows == 20
    pids = [line for *_, line in print_forwarding.taken()]
    assert 1 < len(set(pids)) < 8


def test_cpu_time_beside_a_host_counts_for_each_piece_of_work(process: FunctionProcess) -> None:
    made = mapped(at_33(work_for_a_second), dead_letters=False)
    asked = trial(made)
    spent = [process.run(made, asked)[1] for _ in range(2)]
    assert all(0.9 < seconds < 10 for seconds in spent), spent


def test_blocks_are_frames_one_after_the_other() -> None:
    made = built(lambda rows: rows.stateful("sums", Sums(), keys=["key"], schema=SCHEMA))
    asked = trial(made)
    outcome = partition.run(made, asked.work, asked.state, [])
    given = b"".join(block for _, block in outcome.blocks)
    assert sandbox.blocks(list(frames.frames(memoryview(given)))) == given
