"""Events of a run: wall-clock records become times since the failure, and survive the disk."""

import pytest

from rekindle.model import run_events
from rekindle.model.errors import InputError
from rekindle.model.run_events import Event

RECORDS = [
    {"at": 1000.25, "kind": "commit", "query": "q", "query_partition": "q/0", "epoch": 7},
    {"at": 999.5, "kind": "cut", "epoch": 7, "cut_at": 999.25, "rows": 12},
    {"at": 1000.0, "kind": "kill", "node": "127.0.0.4"},
]


def test_times_count_from_the_failure_and_come_in_order() -> None:
    found = run_events.relative(RECORDS, failure_at=1000.0)
    assert [(event.t, event.kind) for event in found] == [
        (-0.5, "cut"),
        (0.0, "kill"),
        (0.25, "commit"),
    ]


def test_the_time_of_the_newest_row_of_a_cut_is_converted_too() -> None:
    cut = run_events.relative(RECORDS, failure_at=1000.0)[0]
    assert cut.extra == {"cut_at": -0.75, "rows": 12}


def test_events_read_back_are_equal_to_those_written() -> None:
    written = run_events.relative(RECORDS, failure_at=1000.0001234567)
    assert run_events.parse(run_events.serialize(written)) == written


def test_an_unknown_kind_is_kept_with_its_fields() -> None:
    (event,) = run_events.parse('{"version": 1, "t": 2, "kind": "checkpoint", "bytes": 10}\n')
    assert event == Event(2.0, "checkpoint", extra={"bytes": 10})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is no JSON"),
        ("[1]", "is no JSON object"),
        ('{"version": 2, "t": 0, "kind": "warm"}', "has version 2, known is 1"),
        ('{"version": 1, "t": 0}', "has no kind"),
        ('{"version": 1, "kind": "warm"}', "t is None, not a time in seconds"),
        ('{"version": 1, "t": NaN, "kind": "warm"}', "t is nan, not a time in seconds"),
        ('{"version": 1, "t": 0, "kind": "cut"}', "is a cut event without epoch"),
        ('{"version": 1, "t": 0, "kind": "cut", "epoch": "7"}', "epoch is '7', not a whole number"),
        ('{"version": 1, "t": 0, "kind": "kill", "node": 4}', "node is 4, not a string"),
    ],
)
def test_a_bad_line_is_named_with_its_number(line: str, message: str) -> None:
    good = '{"version": 1, "t": 0, "kind": "warm"}\n'
    with pytest.raises(InputError) as raised:
        run_events.parse(good + line)
    assert raised.value.where == "events.jsonl: line 2"
    assert raised.value.what.startswith(message)


def test_the_last_event_of_a_kind_can_be_asked_for_up_to_a_time() -> None:
    found = (Event(-3.0, "warm"), Event(-1.0, "warm"), Event(1.0, "warm"))
    assert run_events.last(found, "warm", until=0.0) == found[1]
    assert run_events.last(found, "finish") is None


def test_a_key_that_is_given_twice_is_refused() -> None:
    line = '{"version": 1, "kind": "finish", "t": 1, "t": 2}'
    with pytest.raises(InputError, match=r"line 1: is no JSON \('t' is there twice\)"):
        run_events.parse(line)
