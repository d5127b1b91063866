"""Topics of Kafka as a source: what there is of them, and the records of ranges as rows.

    topics, or a pattern ──latest_offsets──► TOPIC/PARTITION: oldest, latest, the topic's id
    records of a range   ──decoder──► rows, columns kafka_*, and what could not be decoded

It reads what is committed, never commits an offset that it would need, and keeps the offsets of
Kafka as its own. A topic that was recreated has another id, so its offsets are not taken for those
of the old one. Ranges are read by `kafka_ranges`, on the nodes; all else in the driver.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rekindle.model.errors import DataLossError, InputError, SourceAwayError, refuse
from rekindle_spark.connectors import kafka_options, kafka_ranges
from rekindle_spark.connectors.decoding import Csv, Decoder, Json
from rekindle_spark.connectors.kafka_options import ErrorNote
from rekindle_spark.connectors.kafka_ranges import PartitionAddress
from rekindle_spark.pipeline.unbounded_source import PartitionOffsets, RowsAndRejects, SourceTerms
from rekindle_spark.user_code import argument_checks, dead_letter_sieve

EARLIEST, LATEST = "earliest", "latest"
ASK_SECONDS_MAX = 5.0
# Who commits asks nothing meanwhile. A commit waits for the group's coordinator for the first of
# these, and for its answer for the second.
COMMITTER = {"enable.auto.commit": False, "session.timeout.ms": 6_000, "socket.timeout.ms": 10_000}
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us")
# Columns that records have beside what is decoded of their values.
RECORD = pa.schema(
    [
        ("kafka_topic", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("kafka_timestamp", TIMESTAMP),
        ("kafka_timestamp_type", pa.string()),
        ("kafka_key", pa.binary()),
        ("kafka_headers", HEADERS),
    ]
)
VALUE = pa.field("kafka_value", pa.binary())
REJECTS = pa.schema([*RECORD, VALUE])
TIMESTAMP_TYPES = {1: "create", 2: "append"}
# What records have as their timestamp where their producer gave them none.
NO_TIMESTAMP = -1
# What microseconds can hold. A producer that counts nanoseconds is far beyond it.
MILLISECONDS_MAX = (2**63 - 1) // 1_000


@dataclass(slots=True)
class Kafka:
    """Records of `topics`, or of those whose whole name matches `pattern`, from `servers`.

    `value` decodes values (`decoding`); without one the column `kafka_value` has them. `columns`
    are those of RECORD that rows get too. `event_time` is one of the row's columns. A record
    without a value is left out, but with `tombstones` it is a row whose decoded columns are null.
    Reading begins at `start`, EARLIEST or LATEST; partitions that are added later are read whole.
    `options` go to the client, secrets in them as FromFile or FromEnvironment. With a `group`
    offsets are committed to it behind checkpoints, for who watches its lag.
    """

    servers: str
    topics: Sequence[str] = ()
    pattern: str = ""
    value: Decoder | None = None
    event_time: str = "kafka_timestamp"
    columns: Sequence[str] = ("kafka_timestamp",)
    tombstones: bool = False
    start: str = EARLIEST
    terms: SourceTerms = field(default_factory=SourceTerms)
    options: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""
    schema: pa.Schema = field(init=False)
    reject_schema: pa.Schema = field(init=False)
    _asking: "_Asking | None" = field(init=False, default=None)

    def __post_init__(self) -> None:
        where = "Kafka"
        _check_names(where, self.servers, self.topics, self.pattern)
        kafka_options.check_options(where, self.options, (kafka_ranges.QUEUED,))
        if self.start not in (EARLIEST, LATEST):
            what = f"is {argument_checks.shown(self.start)}"
            refuse(f"{where}: start", what, f"choose one of: {EARLIEST}, {LATEST}")
        argument_checks.check_kind(
            f"{where}: tombstones", self.tombstones, bool, "give True or False"
        )
        argument_checks.check_kind(f"{where}: group", self.group, str, "give a consumer group")
        if self.value is not None:
            remedy = "give Json(...), Csv(...), Avro(...) or Bytes(...)"
            argument_checks.check_kind(f"{where}: value", self.value, Decoder, remedy)
            self.value.check(f"{where}: value")
        argument_checks.check_list(f"{where}: columns", self.columns)
        for name in self.columns:
            if name not in RECORD.names:
                remedy = f"choose of: {', '.join(RECORD.names)}"
                refuse(f"{where}: columns", f"name {argument_checks.shown(name)}", remedy)
        decoded = pa.schema([VALUE]) if self.value is None else self.value.schema
        self.schema = pa.schema([*decoded, *(RECORD.field(name) for name in self.columns)])
        self.reject_schema = REJECTS

    def __getstate__(self) -> dict[str, Any]:
        names = (name for name in self.__slots__ if name != "_asking")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, saved: Mapping[str, Any]) -> None:
        for name, value in saved.items():
            setattr(self, name, value)
        self._asking = None

    @property
    def rejects_alike(self) -> bool:
        """See `unbounded_source.rejects_alike`: a registry may come to know a schema later, and
        nobody knows what a function asks."""
        return self.value is None or isinstance(self.value, Json | Csv)

    def check(self, step: str) -> None:
        """Raise InputError where the client library is not there. Nobody is asked."""
        del step
        kafka_options.library()

    def initial_offsets(self) -> Mapping[str, int]:
        """Where reading begins."""
        there = self.latest_offsets()
        at_end = self.start == LATEST
        return {name: one.latest if at_end else one.oldest for name, one in there.items()}

    def latest_offsets(self) -> Mapping[str, PartitionOffsets]:
        """What is committed of each partition.

        Raises InputError where a topic is not there when it is asked first, RunError where Kafka
        refuses before it has ever answered, SourceAwayError where it refuses or is away later. A
        certificate that is not trusted is refused at a first start alone.
        """
        if self._asking is None:
            self._asking = _Asking(self)
        return self._asking.offsets()

    def resume(self) -> None:
        """See `unbounded_source.Resuming`: a certificate that is not trusted may be renewed."""
        if self._asking is None:
            self._asking = _Asking(self)
        self._asking.is_known = True

    def read(self, partition: str, start: int, end: int) -> RowsAndRejects:
        """The rows of a range, and the records of it that cannot be decoded."""
        return self.read_again(partition, start, end, frozenset())

    def read_again(self, partition: str, start: int, end: int, left: Set[int]) -> RowsAndRejects:
        """See `unbounded_source.RejectRepeating`."""
        topic, _, number = partition.rpartition("/")
        options = tuple(sorted(self.options.items()))
        address = PartitionAddress(self.servers, topic, int(number), options)
        rows, rejects = [self.schema.empty_table()], [_no_rejects()]
        for messages in kafka_ranges.messages(address, start, end):
            some, others = self._decoded(messages, left)
            rows.append(some)
            rejects += others
        together = pa.concat_tables(rejects)
        offsets = together["kafka_offset"].to_pylist()
        return RowsAndRejects(pa.concat_tables(rows), together, offsets)

    def check_identities(self, logged: Sequence[tuple[str, str]]) -> None:
        """See `unbounded_source.IdentityChecking`: the ids of topics."""
        if self._asking is None:
            self._asking = _Asking(self)
        topics = {(partition.rpartition("/")[0], identity) for partition, identity in logged}
        self._asking.check_topics(sorted(topics))

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit offsets to the group, where there is one."""
        if self.group and self._asking is not None:
            self._asking.commit(offsets)

    def _decoded(
        self, messages: Sequence[Any], left: Set[int] = frozenset()
    ) -> tuple[pa.Table, list[pa.Table]]:
        """Rows of records, in their order, and those that are rejected: also those at the offsets
        `left`."""
        if not self.tombstones:
            messages = [one for one in messages if one.value() is not None]
        values = [one.value() for one in messages]
        if self.value is None:
            table = pa.table({VALUE.name: pa.array(values, VALUE.type)})
            return self._with_columns(table, messages), []
        full = [place for place, value in enumerate(values) if value is not None]
        rejected = dict[int, str]()
        if left:
            again = (place for place in full if messages[place].offset() in left)
            rejected = dict.fromkeys(again, dead_letter_sieve.LEFT_OUT)
            full = [place for place in full if place not in rejected]
        has_tombstones = len(full) + len(rejected) < len(values)
        decoded = self.value.decode([values[place] for place in full])
        kept = [full[place] for place in decoded.places]
        rejected |= {full[place]: why for place, why in decoded.rejected.items()}
        table = decoded.rows
        if has_tombstones:
            table, kept = _with_tombstones(table, kept, rejected, len(values))
        rows = self._with_columns(table, [messages[place] for place in kept])
        return rows, [_rejects(messages, rejected)] if rejected else []

    def _with_columns(self, table: pa.Table, messages: Sequence[Any]) -> pa.Table:
        for name in self.columns:
            table = table.append_column(RECORD.field(name), _column(name, messages))
        return table.cast(self.schema)


def _with_tombstones(
    table: pa.Table, kept: Sequence[int], rejected: Mapping[int, str], count: int
) -> tuple[pa.Table, list[int]]:
    """Decoded rows with a row of nulls for each record without a value, in the order of records."""
    places = {place: row for row, place in enumerate(kept)}
    order = [place for place in range(count) if place not in rejected]
    rows = pa.array([places.get(place) for place in order], pa.int64())
    return table.take(rows), order


def _rejects(messages: Sequence[Any], rejected: Mapping[int, str]) -> pa.Table:
    places = sorted(rejected)
    found = [messages[place] for place in places]
    columns = [_column(name, found) for name in RECORD.names]
    columns.append(pa.array([one.value() for one in found], VALUE.type))
    columns.append(pa.array([rejected[place] for place in places], pa.string()))
    return pa.Table.from_arrays(columns, schema=_no_rejects().schema)


def _no_rejects() -> pa.Table:
    return pa.schema([*REJECTS, pa.field("error", pa.string())]).empty_table()


def _column(name: str, messages: Sequence[Any]) -> pa.Array:
    """A column of RECORD."""
    return pa.array(list(_values(name, messages)), RECORD.field(name).type)


def _values(name: str, messages: Sequence[Any]) -> Iterable[Any]:
    match name:
        case "kafka_topic":
            return (one.topic() for one in messages)
        case "kafka_partition":
            return (one.partition() for one in messages)
        case "kafka_offset":
            return (one.offset() for one in messages)
        case "kafka_timestamp":
            return (_microseconds(*one.timestamp()) for one in messages)
        case "kafka_timestamp_type":
            times = (one.timestamp() for one in messages)
            return (TIMESTAMP_TYPES.get(kind) if at != NO_TIMESTAMP else None for kind, at in times)
        case "kafka_key":
            return (one.key() for one in messages)
        case _:
            return (_headers(one.headers()) for one in messages)


def _microseconds(kind: int, at: int) -> int | None:
    """A record's timestamp, which the client gives in milliseconds."""
    if kind not in TIMESTAMP_TYPES or at == NO_TIMESTAMP or at > MILLISECONDS_MAX:
        return None
    return at * 1_000


def _headers(headers: Sequence[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    if headers is None:
        return None
    return [{"name": name, "value": value} for name, value in headers]


@dataclass(slots=True)
class _Asking:
    """What the driver asks Kafka, by clients that are made when they are first needed. A source
    `is_known` where the store has offsets of it, and once the run has begun: behind the first
    poll."""

    source: Kafka
    note: ErrorNote = field(default_factory=ErrorNote)
    commit_note: ErrorNote = field(default_factory=ErrorNote)
    asked: int = 0
    is_known: bool = False
    _admin: Any = None
    _consumer: Any = None

    def offsets(self) -> dict[str, PartitionOffsets]:
        """The offsets of all partitions that there are."""
        library = kafka_options.library()
        try:
            identities, oldest, latest = self._answers()
        except library.KafkaException as error:
            self._let_go_of_refused()
            passing = kafka_options.PASSING if self.is_known else ()
            raise kafka_options.of_error(
                self._where,
                error.args[0],
                self.note,
                is_running=self.asked > 0,
                passing=passing,
            ) from error
        finally:
            self.is_known = True
        self.asked += 1
        self.note.clear()
        self._check_first(identities)
        return {
            name: PartitionOffsets(oldest[name], latest[name], identity, only_grows=True)
            for name, identity in identities.items()
            if name in oldest and name in latest
        }

    def check_topics(self, logged: Sequence[tuple[str, str]]) -> None:
        """Ask once whether topics have the ids that were logged; raise as `check_identities`."""
        library, client = kafka_options.library(), self._client()
        topics = sorted({topic for topic, _ in logged})
        try:
            try:
                described = self._described(topics)
            finally:
                client.poll(0)  # for the note
        except library.KafkaException as error:
            self._let_go_of_refused()
            where, cause = f"topic {', '.join(topics)}", error.args[0]
            raise kafka_options.of_error(where, cause, self.note, is_running=True) from error
        self.note.clear()
        for topic, identity in logged:
            _check_topic(topic, identity, described.get(topic))

    def _answers(self) -> tuple[dict[str, str], dict[str, int], dict[str, int]]:
        """The partitions with the ids of their topics, their oldest offsets, and their latest."""
        client = self._client()
        try:
            identities = self._partitions()
            oldest = self._listed(identities, is_latest=False)
            return identities, oldest, self._listed(identities, is_latest=True)
        finally:
            client.poll(0)  # for the note

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit to the group."""
        library = kafka_options.library()
        if self._consumer is None:
            own = {"group.id": self.source.group, **COMMITTER}
            self._consumer = library.Consumer({**self._configuration(self.commit_note), **own})
        wanted = [
            library.TopicPartition(topic, int(number), offset)
            for name, offset in offsets.items()
            for topic, _, number in [name.rpartition("/")]
        ]
        try:
            try:
                self._consumer.commit(offsets=wanted, asynchronous=False)
            finally:
                kafka_options.take_note(self._consumer, self.commit_note)
        except library.KafkaException as error:
            self._let_go_of_refused()
            raise kafka_options.of_error(self._where, error.args[0], self.commit_note) from error
        self.commit_note.clear()

    def _let_go_of_refused(self) -> None:
        """Let go of clients whose credentials were refused: new ones read secrets again."""
        if self.note.name in kafka_options.REFUSALS:
            self._admin = None
        if self.commit_note.name in kafka_options.REFUSALS:
            self._consumer = None

    @property
    def _where(self) -> str:
        names = ", ".join(self.source.topics) or f"topics {self.source.pattern}"
        return f"Kafka at {self.source.servers}, {names}"

    def _configuration(self, note: ErrorNote) -> dict[str, Any]:
        source = self.source
        return kafka_options.configuration("Kafka", source.servers, source.options, note)

    def _client(self) -> Any:
        if self._admin is None:
            self._admin = kafka_options.admin_library().AdminClient(self._configuration(self.note))
        return self._admin

    def _partitions(self) -> dict[str, str]:
        """Each partition that there is, with the id of its topic."""
        topics = [*self.source.topics]
        if self.source.pattern:
            known = self._client().list_topics(timeout=ASK_SECONDS_MAX).topics
            topics = sorted(name for name in known if re.fullmatch(self.source.pattern, name))
        if not topics:
            return {}
        found: dict[str, str] = {}
        for topic, described in self._described(topics).items():
            if self.source.pattern and described.is_internal:
                continue
            numbers = sorted(partition.id for partition in described.partitions)
            found |= {f"{topic}/{number}": str(described.topic_id) for number in numbers}
        return found

    def _described(self, topics: Sequence[str]) -> dict[str, Any]:
        """What Kafka says of those topics that there are."""
        library = kafka_options.library()
        asked = self._client().describe_topics(
            library.TopicCollection(topics), request_timeout=ASK_SECONDS_MAX
        )
        found: dict[str, Any] = {}
        for topic, future in asked.items():
            try:
                found[topic] = future.result()
            except library.KafkaException as error:
                if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                    raise
        return found

    def _listed(self, names: Iterable[str], *, is_latest: bool) -> dict[str, int]:
        """The oldest offsets, or those behind the newest committed record."""
        library = kafka_options.library()
        specs = kafka_options.admin_library().OffsetSpec
        spec = specs.latest() if is_latest else specs.earliest()
        wanted = {}
        for name in names:
            topic, _, number = name.rpartition("/")
            wanted[library.TopicPartition(topic, int(number))] = spec
        if not wanted:
            return {}
        asked = self._client().list_offsets(
            wanted,
            isolation_level=library.IsolationLevel.READ_COMMITTED,
            request_timeout=ASK_SECONDS_MAX,
        )
        found: dict[str, int] = {}
        for at, future in asked.items():
            try:
                found[f"{at.topic}/{at.partition}"] = future.result().offset
            except library.KafkaException as error:
                if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                    raise
        return found

    def _check_first(self, partitions: Iterable[str]) -> None:
        """At the first time topics have to be there that are named."""
        there = {name.rpartition("/")[0] for name in partitions}
        absent = [topic for topic in self.source.topics if topic not in there]
        if absent and self.asked == 1:
            raise InputError(
                where=f"Kafka at {self.source.servers}",
                what=f"has no topic {argument_checks.shown(absent[0])}",
                remedy="make the topic first, or mend the name",
            )


def _check_topic(topic: str, identity: str, described: Any) -> None:
    """Raise where what Kafka says of a topic is not what was logged."""
    if described is None:
        raise SourceAwayError(
            where=f"topic {topic}",
            what="is not there now, and records of it are logged",
            remedy="see whether it was deleted; the run ends where it stays so",
        )
    if str(described.topic_id) != identity:
        raise DataLossError(
            where=f"topic {topic}",
            what="was recreated, and records of the one before are logged",
            remedy="begin again with an empty store: committed output stays where it is",
        )


def _check_names(where: str, servers: object, topics: object, pattern: object) -> None:
    kafka_options.check_servers(where, servers)
    argument_checks.check_list(f"{where}: topics", topics)
    argument_checks.check_kind(f"{where}: pattern", pattern, str, "give a text")
    assert isinstance(topics, Sequence)
    assert isinstance(pattern, str)
    for topic in topics:
        kafka_options.check_topic(where, topic)
    if bool(topics) == bool(pattern):
        what = "and a pattern are there both" if topics else "are none, and there is no pattern"
        refuse(f"{where}: topics", what, "give topics, or a pattern of their names")
    if len({*topics}) != len(topics):
        refuse(f"{where}: topics", "name one twice", "name each once")
    try:
        re.compile(pattern)
    except re.error as error:
        what = f"is no regular expression ({error})"
        refuse(f"{where}: pattern", what, "mend it")
