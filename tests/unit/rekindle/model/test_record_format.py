"""Records: what was written stays readable, what is damaged is refused with place and remedy."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model import record_format
from rekindle.model.errors import RunError

GOLDEN = Path(__file__).parents[3] / "golden"

# What each golden copy says; fields may be added to new records, never renamed in these.
CONTENTS: dict[str, dict[str, Any]] = {
    "generation": {"generation": 3, "started_at": 1700000000.25},
    "offsets": {
        "generation": 3,
        "epoch": 17,
        "cut_at": 1700000017.5,
        "offsets": {"flights": [1600, 1700], "weather": [160, 170]},
        "watermark": 1357034400000000,
        "rows_per_second": 100.0,
        "final": False,
    },
    "branch": {
        "generation": 3,
        "chain": "flights",
        "step": "checked",
        "partition": "flights/2",
        "epoch": 18,
        "text": "step checked: raised ValueError: bad, at epoch 18 of flights/2, row 7",
    },
    "listing": {
        "whole": True,
        "begins": {"0": 40},
        "seen": ["days/1.csv"],
        "files": [
            {
                "name": "days/übermorgen 2.csv",
                "bytes": 4711,
                "version": "4711-1700000000250000000",
                "modified": 1700000000250000,
                "partition": "0",
                "begin": 40,
                "rows": 60,
                "marks": [[0, 13], [60, 4711]],
                "columns": ["at", "key"],
            },
            {
                "name": "days/3.csv",
                "bytes": 1,
                "version": "1-1700000000250000001",
                "modified": 1700000000250000,
                "partition": "0",
                "begin": 100,
                "rows": 1,
                "error": "has no column 'at' in its first line",
            },
        ],
    },
    "copy": {"of": "0123456789abcdef", "id": "4f" * 16, "at": 1700000020.5},
    "commit": {
        "generation": 3,
        "plan_epoch": 2,
        "finished": {"flights/0": [17, 18, ["5f1d", "9a0c"]], "delays/1": [17, 17, ["77e2"]]},
    },
    "compaction": {
        "generation": 3,
        "first": 1,
        "last": 1000,
        "files": [["outputs/delays/commits-1-500-3-1-0.parquet", 24, 1800]],
        "spans": [{"delays": [[0, 0, 2, 24]]}, {"delays": [[-1, 0, 1, 7]]}],
    },
    "checkpoint": {
        "generation": 3,
        "epoch": 17,
        "program": "0123456789abcdef",
        "at": 1700000018.75,
        "bytes": {"delays/0": 4096, "delays/1": 0},
    },
    "plan": {
        "plan_epoch": 2,
        "incident": 1,
        "query_partitions": ["worst-delays/1"],
        "placement": {"delays/1": "127.0.0.4", "flights/0": "127.0.0.3"},
        "reason": "correlated-failure",
        "rollback": False,
    },
    "directive": {
        "sequence": 5,
        "plan_epoch": 2,
        "directive": "drop-executors",
        "nodes": ["127.0.0.7"],
        "reason": "correlated-failure",
    },
    "acknowledgement": {"sequence": 5, "plan_epoch": 2, "epoch": 18},
    "statistics": {
        "costs": {"delays/0": 4.5, "flights/0": 11.25},
        "state_bytes": {"delays/0": 4096},
        "city": "Zürich",
    },
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_there_is_a_golden_copy_of_every_kind() -> None:
    assert set(record_format.VERSIONS) == set(CONTENTS)
    assert set(record_format.VERSIONS) == {path.stem for path in GOLDEN.glob("*.json")} & set(
        CONTENTS
    )


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_golden_copy_is_read_as_it_was_meant(kind: str) -> None:
    data = (GOLDEN / f"{kind}.json").read_bytes()
    assert record_format.decode(kind, data, f"golden/{kind}.json") == CONTENTS[kind]


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_record_is_written_byte_for_byte_as_its_golden_copy(kind: str) -> None:
    backwards = dict(reversed(CONTENTS[kind].items()))
    assert record_format.encode(kind, backwards) == (GOLDEN / f"{kind}.json").read_bytes()


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_what_is_written_is_read_back(content: dict[str, Any]) -> None:
    for name in ("kind", "version", "checksum"):
        content.pop(name, None)
    assert record_format.decode("plan", record_format.encode("plan", content), "plan") == content


@given(st.data())
def test_a_record_cut_short_is_refused(data: st.DataObject) -> None:
    whole = record_format.encode("commit", CONTENTS["commit"])
    # Without its last line end it is whole all the same.
    length = data.draw(st.integers(0, len(whole) - 2))
    with pytest.raises(RunError, match=r"^commits/9\.json: .*; restore it"):
        record_format.decode("commit", whole[:length], "commits/9.json")


def changed(kind: str, **fields: Any) -> bytes:
    record = json.loads(record_format.encode(kind, CONTENTS[kind]))
    return json.dumps(record | fields).encode()


def newer(kind: str) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(record_format.VERSIONS, kind, 2)
        return record_format.encode(kind, CONTENTS[kind])


@pytest.mark.parametrize(
    ("data", "what", "remedy"),
    [
        (b"", "is no JSON", "restore it"),
        (b"\xff\xfe", "is no JSON", "restore it"),
        (b"[1]", "is no JSON object", "restore it"),
        (b"[" * 100_000, "is no JSON", "restore it"),
        (changed("plan"), "is a record of kind 'plan', not 'offsets'", "restore it"),
        (newer("offsets"), "has version 2 of offsets, known is 1", "run the version"),
        (changed("offsets", version=2), "does not match its checksum", "restore it"),
        (changed("offsets", watermark=float("inf")), "is no JSON", "restore it"),
        (changed("offsets", watermark="\ud800"), "is no JSON", "restore it"),
        (changed("offsets", epoch=18), "does not match its checksum", "restore it"),
        (changed("offsets", checksum=None), "does not match its checksum", "restore it"),
    ],
)
def test_a_record_that_is_not_sound_is_refused(data: bytes, what: str, remedy: str) -> None:
    with pytest.raises(RunError) as caught:
        record_format.decode("offsets", data, "offsets/17.json")
    assert str(caught.value).startswith(f"offsets/17.json: {what}; {remedy}")
