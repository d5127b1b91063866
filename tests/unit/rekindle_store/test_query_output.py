"""The committed rows of a query: whole, file by file, and while a driver goes on."""

import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from output_stores import Writer, rows
from whole_stores import Driver, rows_of

import rekindle
from rekindle.model.errors import InputError, RunError
from rekindle_store import commit_segments, compacted_outputs, query_output, store_files
from rekindle_store.store_files import Files


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """A store with three epochs of one query, none of another, and dead letters of a step."""
    made = Writer(tmp_path / "store")
    made.epoch("hourly", 0, 1, 1, 2)
    made.epoch("hourly", 1, 1, 3)
    made.epoch("hourly", 0, 2, 4)
    made.epoch("checked.dead-letters", 0, 2, 9)
    return made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows looks again at once."""
    monkeypatch.setattr(query_output, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(query_output, "RETRY_SECONDS", 0.01)


def numbers(table: pa.Table) -> list[int]:
    return table["n"].to_pylist()


def test_all_rows_are_given_as_arrow_polars_and_pandas(writer: Writer) -> None:
    output = rekindle.read(writer.place, "hourly")
    assert numbers(output.arrow()) == [1, 2, 3, 4]
    assert isinstance(output.polars(), pl.DataFrame)
    assert output.polars()["name"].to_list() == ["row 1", "row 2", "row 3", "row 4"]
    assert list(output.pandas().columns) == ["n", "name"]


def test_a_later_call_has_what_came_to_count_meanwhile(writer: Writer) -> None:
    output = rekindle.read(writer.place, "hourly")
    assert output.arrow().num_rows == 4
    writer.epoch("hourly", 0, 3, 5)
    assert numbers(output.arrow()) == [1, 2, 3, 4, 5]


def test_rows_begin_with_an_epoch_and_end_with_a_number_of_rows(writer: Writer) -> None:
    assert numbers(rekindle.read(writer.place, "hourly", since=2).arrow()) == [4]
    assert numbers(rekindle.read(writer.place, "hourly", limit=3).arrow()) == [1, 2, 3]
    assert numbers(rekindle.read(writer.place, "hourly", limit=1).arrow()) == [1]
    with pytest.raises(InputError, match="limit: is -1; give a number of rows"):
        rekindle.read(writer.place, "hourly", limit=-1)
    with pytest.raises(InputError, match="limit: is '7'; give a number of rows"):
        rekindle.read(writer.place, "hourly", limit="7")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="since: is 'a'; give the number of an epoch"):
        rekindle.read(writer.place, "hourly", since="a")  # type: ignore[arg-type]


def test_without_rows_the_columns_are_there(writer: Writer) -> None:
    for options in ({"since": 7}, {"limit": 0}):
        table = rekindle.read(writer.place, "hourly", **options).arrow()
        assert (table.num_rows, table.column_names) == (0, ["n", "name"])


def test_dead_letters_are_read_by_the_name_of_their_step(writer: Writer) -> None:
    assert numbers(rekindle.read(writer.place, "checked", dead_letters=True).arrow()) == [9]
    assert numbers(rekindle.read(writer.place, "checked.dead-letters").arrow()) == [9]


def test_late_rows_are_read_by_the_name_of_their_step(tmp_path: Path) -> None:
    made = Writer(tmp_path / "late", ("hourly", "by-day.late"))
    made.epoch("by-day.late", 0, 2, 9)
    assert numbers(rekindle.read(made.place, "by-day", late=True).arrow()) == [9]
    with pytest.raises(InputError, match="is asked for dead letters and late rows; leave one out"):
        rekindle.read(made.place, "by-day", late=True, dead_letters=True)


def test_tables_come_file_by_file_and_files_are_named(writer: Writer) -> None:
    output = rekindle.read(writer.place, "hourly")
    assert [numbers(table) for table in output.tables()] == [[1, 2], [3], [4]]
    assert [(file.epoch, file.rows) for file in output.files()] == [(1, 2), (1, 1), (2, 1)]


def test_a_query_without_output_yet_is_told_from_an_unknown_one(writer: Writer) -> None:
    output = rekindle.read(writer.place, "busiest")
    with pytest.raises(InputError, match="query 'busiest': has no output yet; wait until rows of"):
        output.arrow()
    with pytest.raises(InputError, match=r"query 'busy': is no query of .* one of: busiest"):
        rekindle.read(writer.place, "busy")


def test_a_name_with_odd_characters_is_shown_escaped(writer: Writer) -> None:
    with pytest.raises(InputError, match="is no query") as error:
        rekindle.read(writer.place, "\x1b[2J\u202e/../x")
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"cannot be read \(.*\); restore it from a copy of the store"),
        (b"PAR1 and more", r"cannot be read \(.*\); restore it from a copy of the store"),
        (None, "is not there, but commit record 3 names it"),
    ],
)
def test_a_damaged_file_is_named(data: bytes | None, message: str, writer: Writer) -> None:
    path = Path(writer.place) / "outputs/hourly/0-000000002.parquet"
    path.unlink() if data is None else path.write_bytes(data)
    with pytest.raises(InputError, match=f"{path}: {message}") as error:
        rekindle.read(writer.place, "hourly").arrow()
    assert "\n" not in str(error.value)


def test_a_file_with_other_rows_than_its_commit_says_is_damaged(writer: Writer) -> None:
    writer.put("hourly", 0, 2, rows(4, 5))
    with pytest.raises(InputError, match="has 2 rows, where commit record 3 says 1"):
        rekindle.read(writer.place, "hourly").arrow()


def test_a_flipped_bit_among_the_rows_never_reaches_a_reader(writer: Writer) -> None:
    path = Path(writer.place) / "outputs/hourly/0-000000002.parquet"
    sound = path.read_bytes()
    pages = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    table = rekindle.read(writer.place, "hourly", since=2).arrow()
    found = 0
    for place in range(0, pages, 3):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 8]) + sound[place + 1 :])
        try:
            assert rekindle.read(writer.place, "hourly", since=2).arrow().equals(table), place
        except InputError:
            found += 1
    assert found > pages / 3 / 2


def test_columns_that_a_changed_pipeline_adds_are_null_before(writer: Writer) -> None:
    table = rows(5).append_column("more", pa.array([True]))
    writer.commit(writer.put("hourly", 0, 3, table))
    assert rekindle.read(writer.place, "hourly").polars()["more"].to_list() == [None] * 4 + [True]


def test_columns_whose_type_a_changed_pipeline_changes_are_refused(writer: Writer) -> None:
    writer.commit(writer.put("hourly", 0, 3, pa.table({"n": ["five"], "name": ["row 5"]})))
    with pytest.raises(InputError, match="query 'hourly': has columns whose type was changed"):
        rekindle.read(writer.place, "hourly").arrow()
    assert len(list(rekindle.read(writer.place, "hourly").tables())) == 4
    assert rekindle.read(writer.place, "hourly", since=3).arrow()["n"].to_pylist() == ["five"]


def test_who_wants_few_rows_does_not_read_the_rest(writer: Writer) -> None:
    (Path(writer.place) / "outputs/hourly/0-000000002.parquet").write_bytes(b"damaged")
    assert numbers(rekindle.read(writer.place, "hourly", limit=2).arrow()) == [1, 2]


@pytest.mark.usefixtures("quick")
def test_who_follows_gets_what_is_there_and_then_what_comes(writer: Writer) -> None:
    followed = rekindle.read(writer.place, "hourly").follow()
    assert [numbers(next(followed)) for _ in range(3)] == [[1, 2], [3], [4]]
    timer = threading.Timer(0.1, writer.epoch, ("hourly", 1, 2, 5, 6))
    timer.start()
    assert numbers(next(followed)) == [5, 6]
    timer.join()
    writer.epoch("busiest", 0, 3, 7)
    writer.epoch("hourly", 0, 3, 8)
    assert numbers(next(followed)) == [8]


@pytest.mark.usefixtures("quick")
def test_who_follows_a_query_without_output_waits_for_it(writer: Writer) -> None:
    followed = rekindle.read(writer.place, "busiest").follow()
    timer = threading.Timer(0.1, writer.epoch, ("busiest", 0, 3, 7))
    timer.start()
    assert numbers(next(followed)) == [7]
    timer.join()


@pytest.mark.usefixtures("quick")
def test_who_wants_only_what_is_new_gets_nothing_of_before(writer: Writer) -> None:
    followed = rekindle.read(writer.place, "hourly", limit=2).follow(only_new=True)
    timer = threading.Timer(0.1, writer.epoch, ("hourly", 0, 3, 5, 6, 7))
    timer.start()
    assert [numbers(table) for table in followed] == [[5, 6]]
    timer.join()


@pytest.mark.usefixtures("quick")
def test_an_unknown_query_of_an_older_driver_is_not_waited_for(tmp_path: Path) -> None:
    older = Writer(tmp_path / "older", outputs=())
    older.epoch("hourly", 0, 1, 1)
    with pytest.raises(InputError, match="is no query of"):
        next(rekindle.read(older.place, "none").follow())


@pytest.mark.usefixtures("quick")
def test_a_store_that_is_away_for_a_while_is_waited_for(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str | None] = []
    followed = rekindle.read(writer.place, "hourly").follow(waiting=told.append)
    assert [numbers(next(followed)) for _ in range(3)] == [[1, 2], [3], [4]]
    writer.epoch("hourly", 0, 3, 5)
    left = 4
    read = type(store_files.at(writer.place)).read

    def shaky(self: Files, name: str) -> bytes:
        nonlocal left
        if left:
            left -= 1
            raise OSError(5, "Input/output error", name)
        return read(self, name)

    monkeypatch.setattr(type(store_files.at(writer.place)), "read", shaky)
    assert numbers(next(followed)) == [5]
    assert told[0] is not None
    assert "does not answer (Input/output error)" in told[0]
    assert told[1] is None


@pytest.mark.usefixtures("quick")
def test_a_store_that_stays_away_ends_it(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_output, "PATIENCE_SECONDS", 0.05)
    followed = rekindle.read(writer.place, "hourly", since=9).follow()

    def away(*_: object) -> Iterator[bytes]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(type(store_files.at(writer.place)), "read", away)
    with pytest.raises(RunError, match=r"does not answer \(Input/output error\)"):
        next(followed)


@pytest.mark.usefixtures("quick")
def test_a_store_that_is_begun_anew_is_not_taken_for_the_same(
    writer: Writer, tmp_path: Path
) -> None:
    followed = rekindle.read(writer.place, "hourly").follow()
    assert [numbers(next(followed)) for _ in range(3)] == [[1, 2], [3], [4]]
    (tmp_path / "store").rename(tmp_path / "before")
    again = Writer(tmp_path / "store", outputs=("hourly",))
    again.epoch("hourly", 0, 1, 1)
    with pytest.raises(InputError, match="was begun anew while it was followed; start again"):
        next(followed)


@pytest.fixture(name="compacting")
def _compacting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A driver that has ten epochs, of which eight may be put together."""
    monkeypatch.setattr(commit_segments, "LENGTH", 4)
    driver = Driver(tmp_path / "compacting")
    driver.run(*range(1, 11))
    driver.checkpoint()
    driver.checkpoint()
    driver.seal_segments()
    driver.store.settled = 10
    return driver


EPOCHS = [numbers(rows_of(epoch)) for epoch in range(1, 11)]
ALL_NUMBERS = [number for epoch in EPOCHS for number in epoch]


def test_rows_that_were_put_together_come_as_they_came_to_count(compacting: Driver) -> None:
    before = list(rekindle.read(compacting.place, "hourly").tables())
    compacting.compact()
    assert list(rekindle.read(compacting.place, "hourly").tables()) == before
    assert list(map(numbers, before)) == EPOCHS
    since = rekindle.read(compacting.place, "hourly", since=6, limit=8)
    assert [numbers(table) for table in since.tables()] == [*EPOCHS[5:7], EPOCHS[7][:2]]


def test_who_has_begun_to_read_goes_on_with_what_was_put_together(compacting: Driver) -> None:
    tables = rekindle.read(compacting.place, "hourly").tables()
    begun = [numbers(next(tables))]
    compacting.compact()
    assert [*begun, *map(numbers, tables)] == EPOCHS


@pytest.mark.usefixtures("quick")
def test_who_follows_goes_on_with_what_was_put_together(compacting: Driver) -> None:
    followed = rekindle.read(compacting.place, "hourly").follow()
    begun = [numbers(next(followed)) for _ in range(3)]
    compacting.compact()
    assert [*begun, *(numbers(next(followed)) for _ in range(7))] == EPOCHS
    compacting.run(11)
    assert numbers(next(followed)) == numbers(rows_of(11))


def test_paths_are_of_files_all_of_whose_rows_count(compacting: Driver) -> None:
    output = rekindle.read(compacting.place, "hourly")
    assert len(output.paths()) == 10
    compacting.compact()
    names = ["commits-1-4-1-1-0", "commits-5-8-1-2-0", "0-000000009", "0-000000010"]
    assert [Path(path).stem for path in output.paths()] == names
    assert pl.read_parquet(output.paths())["n"].to_list() == ALL_NUMBERS
    for part in ({"since": 2}, {"limit": 5}):
        with pytest.raises(InputError, match=r"use files\(version=2\)"):
            rekindle.read(compacting.place, "hourly", **part).paths()


def test_paths_are_listed_again_where_files_were_put_together_meanwhile(
    compacting: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted_outputs, "FAN", 2)
    find, looks = compacted_outputs.find, list[int]()

    def found(place: Files, number: int) -> compacted_outputs.Index | None:
        index = find(place, number)
        looks.append(number)
        if len(looks) == 1:
            compacting.compact()  # the first segment's files were single ones still
        return index

    monkeypatch.setattr(compacted_outputs, "find", found)
    paths = rekindle.read(compacting.place, "hourly").paths()
    assert len(looks) > 3
    assert pl.read_parquet(paths)["n"].to_list() == ALL_NUMBERS


def test_paths_that_are_never_the_same_twice_are_an_error(
    compacting: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacting.compact()
    monkeypatch.setattr(query_output, "_paths", lambda _: None)
    with pytest.raises(RunError, match=r"put together 10 times while it was listed; ask again"):
        rekindle.read(compacting.place, "hourly").paths()


def test_a_flipped_bit_in_a_data_file_never_reaches_a_reader(compacting: Driver) -> None:
    compacting.compact()
    path = Path(compacting.place) / "outputs/hourly/commits-1-4-1-1-0.parquet"
    sound, wanted = path.read_bytes(), ALL_NUMBERS
    for at in range(4, len(sound), 7):
        damaged = bytearray(sound)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        try:
            found = numbers(rekindle.read(compacting.place, "hourly").arrow())
        except InputError:
            continue
        assert found == wanted, f"byte {at}"
