"""Records that a source cannot decode are a choice too: a repeat rejects exactly the same ones."""

import io
import json
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import file_inputs
import pyarrow as pa
import pytest
from host_topics import Record
from log_source import Log

from rekindle.model.errors import StepError
from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.connectors import avro_values, kafka_ranges
from rekindle_spark.connectors.avro_values import Avro
from rekindle_spark.connectors.decoding import Bytes, Decoder
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.driver import stopped_branches
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.executor import host_answers, partition
from rekindle_spark.executor.partition import PartitionOutcome, PartitionWork
from rekindle_spark.jobs import job_specs
from rekindle_spark.output import dead_letters
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.pipeline.unbounded_source import RowsAndRejects
from rekindle_spark.store.checkpoint_store import StoreHistory
from rekindle_spark.store.commit_summary import CommitSummary
from rekindle_spark.user_code.dead_letter_sieve import LeftOutRows, Tolerance

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("size", pa.int64())])
OF_AVRO = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "at", "type": "long"}, {"name": "size", "type": "long"}],
}
# Two partitions of a topic, behind one another: place 8 is offset 102 of the second.
SPANS = (("orders/0", 0, 6, ""), ("orders/1", 100, 106, ""))
NOTHING = LeftOutRows()
Make = Callable[[], Decoder]


@dataclass
class Service:
    """What decoding asks: a registry or a service of the user's. It lacks some numbers: those of
    schemas, or of sizes."""

    lacks: set[int] = field(default_factory=set)

    def rows(self, values: pa.BinaryArray) -> pa.Table:
        """Rows of texts of numbers."""
        sizes = [int(one.as_py()) for one in values]
        if self.lacks & set(sizes):
            raise ConnectionError("the service is away")
        return pa.table({"at": pa.array(sizes, SCHEMA.field("at").type), "size": pa.array(sizes)})

    def answer(self, request: Any, timeout: float) -> io.BytesIO:
        """As a registry of schemas."""
        del timeout
        if int(request.full_url.rpartition("/")[2]) in self.lacks:
            said = io.BytesIO(b'{"error_code":40403}')
            raise urllib.error.HTTPError(request.full_url, 404, "no", {}, said)  # type: ignore[arg-type]
        return io.BytesIO(json.dumps({"schema": json.dumps(OF_AVRO)}).encode())


def texts(size: int) -> bytes:
    return b"%d" % size


def of_avro(size: int) -> bytes:
    """A value whose schema has its own number."""
    body = io.BytesIO()
    record = {"at": size, "size": size}
    fastavro.schemaless_writer(body, fastavro.parse_schema(OF_AVRO), record)
    return struct.pack(">bI", 0, size) + body.getvalue()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    found = Service()
    monkeypatch.setattr(urllib.request, "urlopen", found.answer)
    monkeypatch.setattr(avro_values, "ASK_AGAIN_SECONDS", 0.0)
    return found


@pytest.fixture(params=["bytes", "avro"])
def decoder(
    request: pytest.FixtureRequest, service: Service, monkeypatch: pytest.MonkeyPatch
) -> Make:
    """Makes decoders of the topic, whose records have their offsets as sizes: each as that of a
    process that has just begun."""
    is_avro = request.param == "avro"
    value = of_avro if is_avro else texts

    def messages(_: Any, start: int, end: int) -> Iterator[Sequence[Record]]:
        yield [Record(at, value(at)) for at in range(start, end)]

    monkeypatch.setattr(kafka_ranges, "messages", messages)
    if not is_avro:
        return lambda: Bytes(SCHEMA, service.rows)
    return lambda: Avro(SCHEMA, "http://registry", units={"at": "us"})


def built(decoder: Make, *, letters: bool = True) -> Program:
    """orders -> `all`; orders -> dear -> `some`."""
    return of_source(Kafka("b:9", ["orders"], value=decoder()), letters=letters)


def of_source(source: Any, *, letters: bool = True) -> Program:
    pipeline = Pipeline("orders")
    rows = pipeline.source("orders", source, dead_letters=letters)
    rows.sink("all")
    rows.map("dear", lambda table: table, schema=source.schema).sink("some")
    return program.build(pipeline)


def branched(made: Program) -> Program:
    """With a chain for the branch, as partition 1."""
    record = stopped_branches.Branch("orders", "dear", "orders/0", 7, "why").record()
    return stopped_branches.split(made, [record])


def run(made: Program, number: int = 0, **terms: Any) -> PartitionOutcome:
    given = {"spans": SPANS, "tolerance": Tolerance(1, 9), **terms}
    work = PartitionWork(number, 1, 9, **given)
    return partition.run(made, work, partition.initial(made.owner[number]), [])


def sizes(outcome: PartitionOutcome, sink: str = "all") -> list[int]:
    found: list[int] = outcome.sinks[sink].table["size"].to_pylist()
    return found


def test_a_repeat_rejects_what_was_rejected_though_it_can_be_decoded_now(
    service: Service, decoder: Make
) -> None:
    service.lacks = {2, 102, 103}
    first = run(built(decoder))
    assert first.choices == {"orders": LeftOutRows((2, 3, 8, 10))}
    service.lacks.clear()
    repeat = run(built(decoder), choices=first.choices)
    assert (repeat.digest, repeat.choices) == (first.digest, first.choices)
    assert sizes(repeat) == sizes(first) == [0, 1, 3, 4, 5, 100, 101, 104, 105]
    letters = [one.sinks["orders.dead-letters"] for one in (first, repeat)]
    assert [one.is_there for one in letters] == [False, True]
    assert letters[0].digest == letters[1].digest
    assert letters[1].table["kafka_offset"].to_pylist() == [2, 102, 103]


def test_a_repeat_does_not_reject_what_was_decoded(service: Service, decoder: Make) -> None:
    first = run(built(decoder))
    assert first.choices == {}, "no bytes where nothing is rejected"
    service.lacks = {4}
    with pytest.raises(StepError, match=r"cannot decode 1 records in epoch 9 that it decoded bef"):
        run(built(decoder), choices={"orders": NOTHING})
    service.lacks = {2, 4}
    with pytest.raises(StepError, match=r"step orders: .*kafka_offset=4, "):
        run(built(decoder), choices={"orders": LeftOutRows((2, 3))})
    service.lacks.clear()
    assert run(built(decoder), choices={"orders": NOTHING}).digest == first.digest


def test_where_no_choice_is_known_a_source_decides_as_if_for_the_first_time(
    service: Service, decoder: Make
) -> None:
    service.lacks = {2}
    repeat = run(built(decoder), choices={"dear": NOTHING})
    assert not repeat.sinks["orders.dead-letters"].is_there
    assert repeat.choices == {"orders": LeftOutRows((2, 3))}


def test_more_letters_than_there_may_be_now_are_left_out_again(
    service: Service, decoder: Make
) -> None:
    service.lacks = {2, 3}
    first = run(built(decoder))
    repeat = run(built(decoder), choices=first.choices, tolerance=Tolerance(1, 1))
    assert repeat.digest == first.digest


def test_a_branch_rejects_what_its_source_has_rejected(service: Service, decoder: Make) -> None:
    service.lacks = {2, 102}
    first = run(branched(built(decoder)), 1)
    assert set(first.sinks) == {"some"}
    service.lacks.clear()
    choices = {"dear~branch": LeftOutRows((2, 3, 8, 9))}
    repeat = run(branched(built(decoder)), 1, choices=choices)
    assert sizes(repeat, "some") == sizes(first, "some")
    assert repeat.choices == first.choices == choices
    service.lacks = {3}
    with pytest.raises(StepError, match="that it decoded before"):
        run(branched(built(decoder)), 1, choices=choices)


def test_a_branch_without_dead_letters_leaves_nothing_out(service: Service, decoder: Make) -> None:
    service.lacks = {2}
    with pytest.raises(StepError, match="cannot decode 1 records in epoch 9, first"):
        run(branched(built(decoder, letters=False)), 1)


class Doubtful(Log):
    """A log that cannot decode offset 3, and does not know which offset that is."""

    reject_schema = pa.schema([("why_not", pa.string())])

    def read(self, partition: str, start: int, end: int) -> RowsAndRejects:  # type: ignore[override]
        rejects = pa.table({"why_not": ["x"], "error": ["is no row"]})
        return RowsAndRejects(super().read(partition, start, end), rejects)


class Forgetful(Doubtful):
    """One that can repeat, and does not give offsets."""

    def read_again(self, partition: str, start: int, end: int, left: Set[int]) -> RowsAndRejects:
        del left
        return self.read(partition, start, end)


def test_a_source_that_does_not_know_offsets_decides_in_each_run() -> None:
    made, spans = of_source(Doubtful({"p": 6})), (("p", 0, 6, ""),)
    first = run(made, spans=spans)
    assert first.choices == {}
    assert run(made, spans=spans, choices={"orders": NOTHING}).digest == first.digest
    with pytest.raises(StepError, match="gave 0 offsets of 1 rejects"):
        run(of_source(Forgetful({"p": 6})), spans=spans)


def told(outcome: PartitionOutcome, epoch: int) -> list[Any]:
    """As a host reports an epoch, and JSON carries it."""
    given = [epoch, outcome.rows, outcome.digest, host_answers.sinks(outcome), outcome.late]
    found: list[Any] = json.loads(json.dumps([*given, *host_answers.choices(outcome)]))
    return found


def history_of(made: Program, choices: list[Any], letters: Sequence[int] = ()) -> StoreHistory:
    """A driver that knew no branches has committed epochs 8 and 9 of the source; `letters` are
    epochs with dead letters of which it is not known where they were."""
    fold = CommitSummary()
    outputs = [["orders.dead-letters/0", epoch, 1, "f", "d"] for epoch in letters]
    finished = {made.partition_names[0]: [8, 9, ["d", "d"]]}
    record = {"plan_epoch": 1, "finished": finished, "outputs": outputs, "choices": choices}
    fold.take_in(1, record)
    branch = stopped_branches.Branch("orders", "dear", "orders/0", 7, "why").record()
    return StoreHistory({}, fold, None, branches=[branch])


def test_rejects_are_committed_and_known_to_the_next_driver_and_to_branches(
    service: Service, decoder: Make
) -> None:
    service.lacks = {2}
    made = branched(built(decoder))
    progress, points = PartitionTable(made), RestorePoints(7)
    quiet = [8, 12, "d", {}, 0]
    said = dead_letters.take_in(progress, {}, 0, [quiet, told(run(made), 9)])
    assert said == [["orders.dead-letters/0", 9, [2, 3], []]]
    again, nothing = [(2, 3), ()], [(), ()]
    # of the source in this driver, then of the branch that comes later
    wanted = {"8": {"orders": nothing}, "9": {"orders": again}}
    assert job_specs._choices(progress, 0, 8, 10) == {"choices": wanted}
    of_branch = {"8": {"dear~branch": nothing}, "9": {"dear~branch": again}}
    assert job_specs._choices(progress, 1, 8, 10) == {"choices": of_branch}
    found = dead_letters.read_back(made, history_of(made, said, [9]), points)
    after = PartitionTable(made, points, choices=found)
    assert job_specs._choices(after, 0, 8, 10) == {"choices": wanted}
    assert job_specs._choices(after, 1, 8, 10) == {"choices": of_branch}


def test_a_branch_keeps_a_choice_of_its_own(service: Service, decoder: Make) -> None:
    made = branched(built(decoder))
    progress = PartitionTable(made)
    dead_letters.take_in(progress, {}, 0, [[9, 12, "d", {}, 0]])
    service.lacks = {2}
    said = dead_letters.take_in(progress, {}, 1, [told(run(made, 1), 9)])
    assert said == [["dear~branch.dead-letters/0", 9, [2, 3], []]]
    assert dead_letters.known(progress, 1, 9) == {"dear~branch": LeftOutRows((2, 3))}
    fold = CommitSummary()
    finished = {name: [9, 9, ["d"]] for name in made.partition_names}
    record = {"plan_epoch": 1, "finished": finished, "outputs": [], "choices": said, "branches": 1}
    fold.take_in(1, record)
    branch = stopped_branches.Branch("orders", "dear", "orders/0", 7, "why").record()
    history = StoreHistory({}, fold, None, branches=[branch])
    found = dead_letters.read_back(made, history, RestorePoints(7))
    assert found == progress.choices


def test_of_rejects_of_an_earlier_version_it_is_not_known_which_they_were(decoder: Make) -> None:
    made = branched(built(decoder))
    found = dead_letters.read_back(made, history_of(made, [], [9]), RestorePoints(7))
    assert found == {(0, 8): {"orders": NOTHING}, (1, 8): {"dear~branch": NOTHING}}
    # the branch has run in that version too, and has kept nothing of what it rejected
    history = history_of(made, [], [9])
    finished = {made.partition_names[1]: [8, 9, ["d", "d"]]}
    record = {"plan_epoch": 1, "finished": finished, "outputs": [], "branches": 1}
    history.fold.take_in(2, record)
    assert dead_letters.read_back(made, history, RestorePoints(7)) == found


def test_rows_of_a_row_group_that_can_be_read_again_stay_rejected(tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    file_inputs.write("parquet", inputs / "a", range(14))
    file_inputs.write("parquet", inputs / "b", range(14, 17))
    found = file_inputs.source(inputs, "parquet")
    begin, end = file_inputs.ends(found)["0"]
    read = file_inputs.on_a_node(found).read_again("0", begin, end, {2, 3, 15})
    assert file_inputs.values(read) == [0, 1, *range(4, 15), 16]
    assert read.offsets == [2, 3, 15]
    why = "was left out when the epoch ran first"
    assert file_inputs.whys(read, inputs) == [("a", 3, why), ("a", 4, why), ("b", 2, why)]
