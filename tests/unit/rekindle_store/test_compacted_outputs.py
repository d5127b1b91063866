"""Indices of output that was put together: where rows are, and what is damaged."""

from dataclasses import replace

import pytest
from compacted_stores import Log, finish, log_of, make_small
from memory_files import MemoryFiles

from rekindle.model.errors import DamagedError
from rekindle_spark.output.output_compaction import Compaction
from rekindle_store import commit_segments, compacted_outputs
from rekindle_store.compacted_outputs import DataFile, Index, Part, Places, Stretch
from rekindle_store.transfers import Moved, unwatched

FILE = DataFile("outputs/q/commits-1-2-1-1-0.parquet", 10, 100)
OTHER = DataFile("outputs/q/commits-1-2-1-1-1.parquet", 5, 50)
OWN = Stretch(None, 0, 1, 7)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def record(*outputs: tuple[str, int]) -> dict[str, list[list[object]]]:
    """A commit record that names files of queries, with so many rows."""
    named = [[f"{query}/0", 1, rows, f"{place}", ""] for place, (query, rows) in enumerate(outputs)]
    return {"outputs": named}


def parts(*stretches: Stretch, rows: tuple[int, ...]) -> list[Part | None]:
    index = Index(1, 2, 1, [{"q": stretches}])
    half = len(rows) // 2
    named = [(1, record(*(("q", n) for n in rows[:half])))]
    named += [(2, record(*(("q", n) for n in rows[half:])))]
    return list(compacted_outputs.parts(index, 1, named, "here").values())


def test_first_rows_are_sums_of_the_rows_before() -> None:
    found = parts(
        Stretch(FILE, 2, 2, 6),
        Stretch(OTHER, 0, 1, 5),
        OWN,
        Stretch(FILE, 8, 1, 2),
        rows=(4, 2, 5, 7, 2),
    )
    assert found == [Part(FILE, 2, 4), Part(FILE, 6, 2), Part(OTHER, 0, 5), None, Part(FILE, 8, 2)]


def test_files_without_rows_are_found_as_well() -> None:
    assert parts(Stretch(FILE, 0, 3, 4), rows=(0, 4, 0)) == [
        Part(FILE, 0, 0),
        Part(FILE, 0, 4),
        Part(FILE, 4, 0),
    ]


@pytest.mark.parametrize(
    ("stretches", "rows"),
    [
        ((Stretch(FILE, 0, 2, 5),), (2, 3, 1)),
        ((Stretch(FILE, 0, 3, 6),), (2, 4)),
        ((Stretch(FILE, 0, 2, 6),), (2, 3)),
        ((Stretch(FILE, 0, 1, 5), Stretch(OTHER, 0, 1, 5)), (4, 5)),
        ((Stretch(FILE, 0, 2, 6), OWN), (2, 4)),
        ((), (1,)),
    ],
    ids=["a file more", "a file less", "fewer rows", "other rows", "a stretch more", "none"],
)
def test_an_index_that_does_not_fit_its_records_is_refused(
    stretches: tuple[Stretch, ...], rows: tuple[int, ...]
) -> None:
    with pytest.raises(DamagedError, match="here: knows other files of query q than the commit"):
        parts(*stretches, rows=rows)


def test_an_index_is_read_as_it_was_written() -> None:
    index = Index(
        1, 4, 3, [{"q": (Stretch(FILE, 0, 2, 10),)}, {"q": (OWN, Stretch(OTHER, 1, 1, 4))}]
    )
    assert compacted_outputs.decoded(compacted_outputs.encoded(index), "here") == index


@pytest.mark.parametrize(
    ("stretch", "message"),
    [
        (Stretch(FILE, 5, 1, 6), "takes more rows of outputs/q/commits-1-2-1-1-0.parquet than it"),
        (Stretch(replace(FILE, name="outputs/../x"), 0, 1, 1), "which no driver does"),
    ],
)
def test_an_index_that_no_driver_makes_is_refused(stretch: Stretch, message: str) -> None:
    data = compacted_outputs.encoded(Index(1, 2, 1, [{"q": (stretch,)}]))
    with pytest.raises(DamagedError, match=message):
        compacted_outputs.decoded(data, "here")


class Moving(MemoryFiles):
    """Files whose driver puts all output together at the first look for an index."""

    def __init__(self, log: Log, compaction: Compaction) -> None:
        super().__init__()
        self.content, self.compaction, self.looks = log.files.content, compaction, 0

    def read(self, name: str, moved: Moved = unwatched) -> bytes:
        del moved
        data = self.content.get(name)
        if name.endswith(".files"):
            self.looks += 1
            if self.looks == 1:
                finish(self.compaction)
        if data is None:
            raise FileNotFoundError(2, "is not there", name)
        return data


@pytest.mark.parametrize("begun", [0, 3, 8])
@pytest.mark.parametrize("number", range(1, 9))
def test_who_looks_while_indices_move_up_finds_one(number: int, begun: int) -> None:
    log = log_of(9)
    compaction = log.compaction()
    for _ in range(begun):
        compaction.advance()
    assert compacted_outputs.find(Moving(log, compaction), number) is not None


def test_a_store_whose_segment_is_not_there_any_more_is_damaged() -> None:
    log = log_of(5)
    finish(log.compaction())
    del log.files.content[commit_segments.name_of(1)]
    with pytest.raises(DamagedError, match=r"1-2\.jsonl\.gz: is not there, but 1-4\.files is for"):
        Places(log.files).part(1, "outputs/hourly/0-000000001.parquet")


def test_names_of_files_that_are_no_indices_are_told() -> None:
    files = MemoryFiles()
    for name in ("1-2", "5-8", "1-8", "3-6", "0-2", "1-3", "1-16"):
        files.content[f"commits/segments/{name}.files"] = b""
    made, others = compacted_outputs.made(files)
    assert made == [{1}, {5}, {1}]
    assert others == [f"commits/segments/{name}.files" for name in ("0-2", "1-16", "1-3", "3-6")]
