"""The source of Kafka without a broker: what it refuses, sends to nodes, and makes of records."""

import pickle
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import tls_servers

from rekindle.model.errors import DataLossError, InputError, RunError, SourceAwayError
from rekindle_spark.connectors import hidden_values, kafka, kafka_options, kafka_ranges
from rekindle_spark.connectors.decoding import Json
from rekindle_spark.connectors.hidden_values import FromEnvironment, FromFile
from rekindle_spark.connectors.kafka import Kafka
from rekindle_spark.connectors.kafka_options import ErrorNote
from rekindle_spark.connectors.kafka_ranges import PartitionAddress
from rekindle_spark.pipeline import unbounded_source
from rekindle_spark.pipeline.steps import Pipeline

PASSPHRASE = "sasl.oauthbearer.assertion.private.key.passphrase"
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("value", pa.int64())])


@dataclass
class Record:
    """A message as the client gives it."""

    at: int
    body: bytes | None
    headers_: list[tuple[str, bytes | None]] | None = None
    stamp: tuple[int, int] = (1, 5)

    def topic(self) -> str:
        return "flights"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.at

    def error(self) -> None:
        return None

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes | None:
        return self.body

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.headers_

    def timestamp(self) -> tuple[int, int]:
        return self.stamp


def source(**given: Any) -> Kafka:
    return Kafka(**{"servers": "b:9092", "topics": ["flights"], "value": Json(SCHEMA), **given})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"servers": ""}, "servers: is ''"),
        ({"topics": []}, "topics: are none"),
        ({"topics": "flights"}, "topics: is 'flights', not a list"),
        ({"topics": ["a b"]}, "topic 'a b': is no name"),
        ({"topics": ["a", "a"]}, "topics: name one twice"),
        ({"pattern": ".*"}, "topics: and a pattern are there both"),
        ({"topics": (), "pattern": "("}, "pattern: is no regular expression"),
        ({"start": "now"}, "start: is 'now'; choose one of: earliest, latest"),
        ({"topics": (), "pattern": b".*"}, "pattern: is of type bytes; give a text"),
        ({"columns": ["offset"]}, "columns: name 'offset'"),
        ({"columns": "kafka_key"}, "columns: is 'kafka_key', not a list"),
        ({"tombstones": "no"}, "tombstones: is 'no'; give True or False"),
        ({"group": 5}, "group: is 5; give a consumer group"),
        ({"value": Json}, "value: is the class Json; give Json(...)"),
        ({"options": {"group.id": "x"}}, "option 'group.id': is set by Rekindle"),
        ({"options": {"queued.max.messages.kbytes": 1}}, "kbytes': is set by Rekindle"),
        ({"options": {"sasl.password": "x"}}, "option 'sasl.password': is a secret"),
        ({"options": {"ssl.key.pem": "x"}}, "option 'ssl.key.pem': is a secret"),
        ({"options": {"sasl.jaas.config": "x"}}, "option 'sasl.jaas.config': is a secret"),
        ({"options": {PASSPHRASE: "x"}}, f"option {PASSPHRASE!r}: is a secret"),
        ({"options": {"retries": []}}, "option 'retries': is of type list"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as refused:
        source(**given)
    assert text in str(refused.value)


def test_where_tokens_come_from_is_no_secret() -> None:
    options = {"sasl.oauthbearer.token.endpoint.url": "https://id.example/token"}
    assert source(options=options).options == options


@pytest.mark.parametrize("options", [{"no.such.option": 1}, {"fetch.wait.max.ms": "soon"}])
def test_an_option_that_the_client_does_not_take_is_no_absence(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="the client does not take an option") as refused:
        source(options=options).latest_offsets()
    assert next(iter(options)) in str(refused.value)


def test_a_secret_is_sent_as_its_place_and_read_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("swordfish-1\n")
    monkeypatch.setenv("KEY_PASSWORD", "swordfish-2")
    options = {
        "sasl.password": FromFile(str(tmp_path / "password")),
        "ssl.key.password": FromEnvironment("KEY_PASSWORD"),
    }
    sent = pickle.dumps(source(options=options))
    assert b"swordfish" not in sent
    received = pickle.loads(sent)
    assert "swordfish" not in repr(received)
    made = kafka_options.configuration("Kafka", "b:9092", received.options, ErrorNote())
    assert (made["sasl.password"], made["ssl.key.password"]) == ("swordfish-1", "swordfish-2")


def test_a_secret_that_is_not_there_is_named_by_its_place_alone(tmp_path: Path) -> None:
    for value, text in (
        (FromFile(str(tmp_path / "none")), "cannot be read (FileNotFoundError)"),
        (FromEnvironment("REKINDLE_NONE"), "the environment has no REKINDLE_NONE"),
    ):
        with pytest.raises(RunError) as refused:
            hidden_values.revealed("option 'sasl.password'", value)
        assert text in str(refused.value)


def rows_of(reading: Kafka, records: Sequence[Record]) -> tuple[list[dict[str, Any]], list[Any]]:
    table, rejects = reading._decoded(records)
    return table.to_pylist(), [one for found in rejects for one in found.to_pylist()]


def test_rows_have_the_columns_that_are_wanted_and_tombstones_are_left_out() -> None:
    kafka = source(columns=("kafka_offset", "kafka_headers", "kafka_timestamp_type"))
    records = [Record(7, b'{"value":1}', [("h", None)]), Record(8, None), Record(9, b"{}")]
    rows, rejects = rows_of(kafka, records)
    assert not rejects
    assert [row["kafka_offset"] for row in rows] == [7, 9]
    assert rows[0]["kafka_headers"] == [{"name": "h", "value": None}]
    assert rows[0]["kafka_timestamp_type"] == "create"


def test_tombstones_that_are_wanted_are_rows_of_nulls_in_their_place() -> None:
    kafka = source(columns=("kafka_offset",), tombstones=True)
    records = [Record(1, b'{"value":1}'), Record(2, None), Record(3, b"x"), Record(4, b"{}")]
    rows, rejects = rows_of(kafka, records)
    assert [(row["kafka_offset"], row["value"]) for row in rows] == [(1, 1), (2, None), (4, None)]
    assert [(one["kafka_offset"], one["kafka_value"]) for one in rejects] == [(3, b"x")]
    assert rejects[0]["error"] == "is no JSON object"
    again, others = kafka._decoded(records, {3, 4})
    assert again["kafka_offset"].to_pylist() == [1, 2]
    assert [one["kafka_offset"].to_pylist() for one in others] == [[3, 4]]


def test_a_record_without_a_timestamp_has_none() -> None:
    kafka = Kafka("b:9092", ["flights"], columns=("kafka_timestamp", "kafka_timestamp_type"))
    stamps = [(0, 0), (2, 5), (1, -1)]  # -1 is what producers send that have none
    rows, _ = rows_of(kafka, [Record(n, b"%d" % n, stamp=one) for n, one in enumerate(stamps)])
    assert [row["kafka_timestamp"] is None for row in rows] == [True, False, True]
    assert [row["kafka_timestamp_type"] for row in rows] == [None, "append", None]
    assert [row["kafka_value"] for row in rows] == [b"0", b"1", b"2"]


def test_a_timestamp_beyond_all_microseconds_is_none() -> None:
    kafka, of_nanoseconds = Kafka("b:9092", ["flights"]), 1_700_000_000_000_000_000
    records = [Record(1, b"a", stamp=(1, of_nanoseconds)), Record(2, b"b", stamp=(1, 5))]
    rows, _ = rows_of(kafka, records)
    assert [row["kafka_timestamp"] is None for row in rows] == [True, False]
    assert [row["kafka_value"] for row in rows] == [b"a", b"b"]


class Fault:
    """An error of the client."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return f"words of {self._name}"

    def fatal(self) -> bool:
        return False


def test_what_no_waiting_mends_ends_the_run_and_all_else_is_away() -> None:
    note = ErrorNote()
    away = kafka_options.of_error("Kafka", Fault("_TIMED_OUT"), note)
    assert isinstance(away, SourceAwayError)
    assert "words of _TIMED_OUT" in str(away)
    note(Fault("_AUTHENTICATION"))
    refused = kafka_options.of_error("Kafka", Fault("_TIMED_OUT"), note)
    assert not isinstance(refused, SourceAwayError)
    assert "Kafka refuses it (words of _AUTHENTICATION)" in str(refused)
    for name in ("_TIMED_OUT", "TOPIC_AUTHORIZATION_FAILED"):
        later = kafka_options.of_error("Kafka", Fault(name), note, is_running=True)
        assert isinstance(later, SourceAwayError)
        assert f"(words of {name}; words of _AUTHENTICATION)" in str(later)


def test_a_refusal_stays_until_kafka_has_answered() -> None:
    note = ErrorNote()
    for name in ("_TRANSPORT", "_AUTHENTICATION", "_ALL_BROKERS_DOWN"):
        note(Fault(name))
    assert note.name == "_AUTHENTICATION"
    note.clear()
    note(Fault("_TRANSPORT"))
    assert note.text == "words of _TRANSPORT"


def test_where_nobody_listens_the_client_itself_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "ASK_SECONDS_MAX", 0.5)
    with pytest.raises(SourceAwayError, match="Connection refused"):
        Kafka("127.0.0.1:1", topics=["flights"]).latest_offsets()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("_SSL", "ssl.ca.location"),
        ("_AUTHENTICATION", "the credentials and the sasl.mechanism"),
        ("SASL_AUTHENTICATION_FAILED", "the credentials"),
        ("TOPIC_AUTHORIZATION_FAILED", "the rights to the topic"),
        ("GROUP_AUTHORIZATION_FAILED", "the right to read the consumer group"),
        ("CLUSTER_AUTHORIZATION_FAILED", "the right IdempotentWrite to the cluster"),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "the rights to transactional ids"),
    ],
)
def test_a_refusal_names_what_to_do(name: str, remedy: str) -> None:
    refused = kafka_options.of_error("Kafka", Fault(name), ErrorNote())
    assert type(refused) is RunError
    assert f"Kafka refuses it (words of {name})" in refused.what
    assert remedy in refused.remedy
    later = kafka_options.of_error("Kafka", Fault(name), ErrorNote(), is_running=True)
    assert isinstance(later, SourceAwayError)
    assert later.remedy == refused.remedy


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_certificate_that_is_not_trusted_is_no_absence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_trusted: bool
) -> None:
    """A server that is trusted and closes the connection may come back."""
    monkeypatch.setattr(kafka, "ASK_SECONDS_MAX", 0.5)
    files, other = (
        tls_servers.tls_files(tmp_path / "its"),
        tls_servers.tls_files(tmp_path / "other"),
    )
    with tls_servers.tls_server(files) as (host, port):
        authority = files.authority if is_trusted else other.authority
        options = {"security.protocol": "SSL", "ssl.ca.location": str(authority)}
        asked = Kafka(f"{host}:{port}", topics=["flights"], options=options)
        with pytest.raises(RunError) as failed:
            asked.latest_offsets()
    if is_trusted:
        assert isinstance(failed.value, SourceAwayError)
    else:
        assert type(failed.value) is RunError
        assert "certificate verify failed" in failed.value.what
        assert "ssl.ca.location" in failed.value.remedy


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("is_a_message", [False, True])
def test_a_refusal_explains_the_silence_of_a_partition_and_may_pass(
    monkeypatch: pytest.MonkeyPatch, is_a_message: bool
) -> None:
    monkeypatch.setattr(kafka_ranges, "SILENT_SECONDS_MAX", 0.0)
    note, refusal = ErrorNote(), Fault("TOPIC_AUTHORIZATION_FAILED")

    def consume(*_: object) -> list[Any]:
        if is_a_message:
            return [SimpleNamespace(error=lambda: refusal)]
        note(refusal)
        return []

    consumer = SimpleNamespace(
        assign=lambda _: None,
        consume=consume,
        position=lambda _: [SimpleNamespace(offset=-1001)],
    )
    reader = kafka_ranges._Reader(PartitionAddress("b:9092", "flights", 3), consumer, note)
    with pytest.raises(SourceAwayError, match=r"partition 3: .*words of TOPIC_AUTHORIZATION_FAIL"):
        list(reader.read(0, 5))


class Refused(Exception):
    """What the client raises."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands for the client library."""
    library = SimpleNamespace(
        KafkaException=Refused, TopicPartition=lambda *at: SimpleNamespace(offset=at[-1])
    )
    monkeypatch.setattr(kafka_options, "library", lambda: library)
    return library


@pytest.mark.usefixtures("client")
def test_an_error_that_kafka_has_recovered_from_explains_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking = kafka._Asking(source())
    fault: list[Fault] = []

    def partitions(_: Any) -> dict[str, str]:
        if fault:
            raise Refused(fault[0])
        return {"flights/0": "x"}

    monkeypatch.setattr(kafka._Asking, "_partitions", partitions)
    monkeypatch.setattr(kafka._Asking, "_listed", lambda *_, **__: {"flights/0": 5})
    silent = SimpleNamespace(poll=lambda _: None)  # that no broker is there is not said here
    monkeypatch.setattr(kafka._Asking, "_client", lambda _: silent)
    asking.note(Fault("_AUTHENTICATION"))
    assert asking.offsets()["flights/0"].latest == 5
    fault.append(Fault("_TIMED_OUT"))
    with pytest.raises(SourceAwayError, match=r"\(words of _TIMED_OUT\)"):
        asking.offsets()
    fault[:] = [Fault("TOPIC_AUTHORIZATION_FAILED")]
    with pytest.raises(SourceAwayError, match=r"\(words of TOPIC_AUTHORIZATION_FAILED"):
        asking.offsets()
    starting = kafka._Asking(source())
    with pytest.raises(RunError, match="Kafka refuses it") as refused:
        starting.offsets()
    assert not isinstance(refused.value, SourceAwayError)


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("is_noted", [False, True])
@pytest.mark.parametrize("before", ["nothing", "an earlier start", "away at the start"])
def test_a_certificate_that_is_not_trusted_refuses_a_source_at_its_first_start_alone(
    monkeypatch: pytest.MonkeyPatch, before: str, is_noted: bool
) -> None:
    found, name = source(), "_TRANSPORT"

    def partitions(asking: kafka._Asking) -> dict[str, str]:
        if is_noted:
            asking.note(Fault(name))
        raise Refused(Fault("_TIMED_OUT" if is_noted else name))

    monkeypatch.setattr(kafka._Asking, "_partitions", partitions)
    silent = SimpleNamespace(poll=lambda _: None)
    monkeypatch.setattr(kafka._Asking, "_client", lambda _: silent)
    if before == "an earlier start":
        found.resume()
    if before == "away at the start":
        with pytest.raises(SourceAwayError):
            found.latest_offsets()
    name = "_SSL"
    with pytest.raises(RunError, match="words of _SSL") as failed:
        found.latest_offsets()
    assert type(failed.value) is (RunError if before == "nothing" else SourceAwayError)
    assert "ssl.ca.location" in failed.value.remedy


@pytest.mark.usefixtures("client")
def test_refused_credentials_end_a_later_start_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def partitions(asking: kafka._Asking) -> dict[str, str]:
        asking.note(Fault("_AUTHENTICATION"))
        raise Refused(Fault("_TIMED_OUT"))

    monkeypatch.setattr(kafka._Asking, "_partitions", partitions)
    silent = SimpleNamespace(poll=lambda _: None)
    monkeypatch.setattr(kafka._Asking, "_client", lambda _: silent)
    found = source()
    found.resume()
    with pytest.raises(RunError, match="Kafka refuses it") as failed:
        found.latest_offsets()
    assert type(failed.value) is RunError


def test_a_group_that_may_not_be_committed_to_is_refused_and_explains_no_silence(
    client: Any,
) -> None:
    asking = kafka._Asking(source(group="lag"))

    def consumer(given: dict[str, Any]) -> Any:
        def commit(**_: Any) -> None:
            raise Refused(Fault("_TIMED_OUT"))

        def poll(_: float) -> Any:
            return reported.pop() if reported else None

        reported = [SimpleNamespace(error=lambda: Fault("GROUP_AUTHORIZATION_FAILED"))]
        assert (given["group.id"], given["session.timeout.ms"]) == ("lag", 6_000)
        return SimpleNamespace(commit=commit, poll=poll)

    client.Consumer = consumer
    with pytest.raises(RunError, match=r"refuses it \(words of GROUP_AUTH") as refused:
        asking.commit({"flights/0": 5})
    assert type(refused.value) is RunError
    assert refused.value.remedy == "give this user the right to read the consumer group"
    assert not asking.note.name


def test_what_is_logged_of_a_topic_is_known_by_its_id(client: Any) -> None:
    known: dict[str, Any] = {"flights": "first"}

    def described(name: str) -> Any:
        found = known.get(name, Fault("UNKNOWN_TOPIC_OR_PART"))
        if isinstance(found, Fault):
            raise Refused(found)
        return SimpleNamespace(topic_id=found)

    client.TopicCollection = list
    found = source()
    found._asking = kafka._Asking(found)
    asked: list[list[str]] = []

    def describe_topics(topics: list[str], **_: Any) -> dict[str, Any]:
        asked.append(topics)
        return {name: SimpleNamespace(result=lambda name=name: described(name)) for name in topics}

    found._asking._admin = SimpleNamespace(describe_topics=describe_topics, poll=lambda _: None)
    known["rides"] = "other"
    found.check_identities([("rides/0", "other"), *[(f"flights/{n}", "first") for n in range(9)]])
    assert asked == [["flights", "rides"]]
    with pytest.raises(DataLossError, match="topic flights: was recreated"):
        found.check_identities([("flights/3", "first"), ("flights/4", "second")])
    for there, text in (
        (Fault("UNKNOWN_TOPIC_OR_PART"), "is not there now"),
        (Fault("_TIMED_OUT"), "words of _TIMED_OUT"),
    ):
        known["flights"] = there
        with pytest.raises(SourceAwayError, match=text):
            found.check_identities([("flights/3", "first")])


@pytest.mark.usefixtures("client")
def test_an_error_before_records_came_explains_no_later_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_ranges, "SILENT_SECONDS_MAX", 0.0)
    batches = [[Record(0, b"a")], [], []]
    consumer = SimpleNamespace(
        assign=lambda _: None,
        consume=lambda *_: batches.pop(0),
        position=lambda _: [SimpleNamespace(offset=-1001)],
    )
    note = ErrorNote()
    note(Fault("_AUTHENTICATION"))
    reader = kafka_ranges._Reader(PartitionAddress("b:9092", "flights", 3), consumer, note)
    with pytest.raises(SourceAwayError, match="at offset 1") as away:
        list(reader.read(0, 5))
    assert "AUTHENTICATION" not in str(away.value)


@pytest.mark.usefixtures("client")
def test_an_error_in_the_place_of_records_explains_their_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_ranges, "SILENT_SECONDS_MAX", 0.0)
    broken = SimpleNamespace(error=lambda: Fault("_BAD_COMPRESSION"))
    batches = [[broken], [], []]
    consumer = SimpleNamespace(
        assign=lambda _: None,
        consume=lambda *_: batches.pop(0),
        position=lambda _: [SimpleNamespace(offset=-1001)],
    )
    address = PartitionAddress("b:9092", "flights", 3)
    reader = kafka_ranges._Reader(address, consumer, ErrorNote())
    with pytest.raises(SourceAwayError, match=r"at offset 0 \(words of _BAD_COMPRESSION\)"):
        list(reader.read(0, 5))


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("said", [[9, 9, -1001], [9, 9, 3], [9, -1001, -1001]])
def test_a_client_that_still_says_where_it_was_before_has_not_read_the_range(
    said: list[int],
) -> None:
    """It is sent back to 2; another thread of its own follows that later."""
    batches: list[list[Any]] = [[Record(8, b"z")], [], [], [Record(2, b"a"), Record(3, b"b")]]
    positions = [9, *said, *said[-1:] * 9]
    consumer = SimpleNamespace(
        assign=lambda _: None,
        consume=lambda *_: batches.pop(0),
        position=lambda _: [SimpleNamespace(offset=positions.pop(0))],
    )
    reader = kafka_ranges._Reader(PartitionAddress("b:9092", "flights", 3), consumer, ErrorNote())
    assert [one.value() for some in reader.read(8, 9) for one in some] == [b"z"]
    found = [one.value() for some in reader.read(2, 4) for one in some]
    assert found == [b"a", b"b"]


@pytest.mark.usefixtures("client")
def test_rights_to_the_group_that_is_used_for_nothing_may_lack() -> None:
    refused = SimpleNamespace(error=lambda: Fault("GROUP_AUTHORIZATION_FAILED"))
    batches: list[list[Any]] = [[refused], [Record(0, b"a"), Record(1, b"b")]]
    consumer = SimpleNamespace(
        assign=lambda _: None,
        consume=lambda *_: batches.pop(0),
        position=lambda _: [SimpleNamespace(offset=-1001)],
    )
    reader = kafka_ranges._Reader(PartitionAddress("b:9092", "flights", 3), consumer, ErrorNote())
    found = [one.value() for some in reader.read(0, 2) for one in some]
    assert found == [b"a", b"b"]


@pytest.mark.parametrize("name", ["_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"])
@pytest.mark.usefixtures("client")
def test_records_that_have_expired_or_were_cut_off_are_gone(name: str) -> None:
    consumer = SimpleNamespace(
        assign=lambda _: None, consume=lambda *_: [SimpleNamespace(error=lambda: Fault(name))]
    )
    reader = kafka_ranges._Reader(PartitionAddress("b:9092", "flights", 3), consumer, ErrorNote())
    with pytest.raises(DataLossError, match="partition 3: has not all records of offsets 2 to 5"):
        list(reader.read(2, 5))


def test_who_was_refused_is_asked_again_with_the_secret_of_then(
    client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("first")
    made: list[dict[str, Any]] = []

    def refusing(given: dict[str, Any]) -> Any:
        made.append(given)

        def refuse(*_: object, **__: object) -> Any:
            given["error_cb"](Fault("_AUTHENTICATION"))
            raise Refused(Fault("_TIMED_OUT"))

        silent = SimpleNamespace(assign=lambda _: None, consume=lambda *_: [], poll=lambda _: None)
        silent.position = lambda _: [SimpleNamespace(offset=-1001)]
        silent.describe_topics = silent.commit = refuse
        return silent

    monkeypatch.setattr(
        kafka_options, "admin_library", lambda: SimpleNamespace(AdminClient=refusing)
    )
    monkeypatch.setattr(kafka_ranges, "SILENT_SECONDS_MAX", 0.0)
    monkeypatch.setattr(kafka_ranges, "_readers", OrderedDict())
    client.Consumer, client.TopicCollection = refusing, tuple
    found = source(options={"sasl.password": FromFile(str(secret))}, group="lag")
    asking = kafka._Asking(found)
    calls = (
        lambda: asking.check_topics([("flights", "x")]),
        lambda: asking.commit({"flights/0": 5}),
        lambda: found.read("flights/0", 0, 5),
    )
    for call in calls:
        made.clear()
        for word in ("first", "second"):
            secret.write_text(word)
            with pytest.raises(RunError):
                call()
        assert [one["sasl.password"] for one in made] == ["first", "second"]


@pytest.mark.parametrize("budget_mib", [None, 16, 128, 2_048])
def test_what_consumers_fetch_ahead_stays_within_the_budget_of_the_process(
    client: Any, monkeypatch: pytest.MonkeyPatch, budget_mib: int | None
) -> None:
    given: list[dict[str, Any]] = []

    def consumer(options: dict[str, Any]) -> Any:
        given.append(options)
        return SimpleNamespace(close=lambda: None)

    client.Consumer = consumer
    monkeypatch.setattr(kafka_ranges, "_readers", OrderedDict())
    budget = None if budget_mib is None else budget_mib << 20
    monkeypatch.setattr(unbounded_source.prefetch, "bytes_max", budget)
    for number in range(2 * kafka_ranges.READERS_MAX):
        kafka_ranges._reader(PartitionAddress("b:9092", "flights", number))
        kafka_ranges._reader(PartitionAddress("b:9092", "flights", number))
    fetched = [one["queued.max.messages.kbytes"] << 10 for one in given]
    assert len(fetched) == 2 * kafka_ranges.READERS_MAX
    least, most = kafka_ranges.QUEUED_BYTES_MIN, kafka_ranges.QUEUED_BYTES_MAX
    together = sum(one.queued_bytes for one in kafka_ranges._readers.values())
    if budget is None:
        assert {*fetched} == {most}
        return
    assert fetched[0] == min(most, budget // 4)
    assert min(fetched) >= least
    assert together <= max(budget, 0) + kafka_ranges.READERS_MAX * least


def test_a_pipeline_takes_it_with_dead_letters() -> None:
    pipeline = Pipeline("flights")
    stream = pipeline.source("flights", source(event_time="at"), dead_letters=True)
    assert stream.schema.names == ["at", "value", "kafka_timestamp"]
    with pytest.raises(InputError, match="event time"):
        pipeline.source("other", source(event_time="value"))
