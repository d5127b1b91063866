"""Files that are added while a pipeline runs: each of their rows comes out exactly once.

So it is with nodes that are lost while files come, a folder or bucket that is away, files that are
removed once they were read, and a driver that dies.
"""

import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import added
import object_server
import pytest
from application import Application, compare
from harms import lose, meet, node_of
from object_server import BUCKET, ObjectServer

from rekindle.model.errors import DataLossError, InputError, RunError, SourceAwayError
from rekindle_spark.connectors.file_source import FileSource
from rekindle_store import store_files
from rekindle_store.object_files import ObjectFiles

Prepare = Callable[..., Application]


def test_files_that_are_added_come_out_exactly_once_whatever_is_lost_meanwhile(
    prepare: Prepare, tmp_path: Path
) -> None:
    inputs, folder = tmp_path / "files", tmp_path / "files" / "added"
    folder.mkdir(parents=True)
    (inputs / added.PLACE).write_text(str(folder))
    added.add(inputs, added.put_in(folder), range(60))
    application = prepare(pipeline=added)
    application.inputs = inputs
    application.start_and_recover()

    meet(
        application,
        a_lost_node_while_files_are_added,
        what_was_read_is_removed,
        a_folder_that_is_away_holds_up_its_own_queries_alone,
        a_driver_that_dies_goes_on_from_its_list,
    )
    add(application, range(520, 530))
    come_to_an_end(application)


def folder_of(application: Application) -> Path:
    """Where files are added."""
    return Path((application.inputs / added.PLACE).read_text())


def add(application: Application, seconds: range) -> None:
    """Add files for these seconds; those of a folder that is away come where it is now."""
    put, away = added.put_in(folder_of(application)), application.inputs / "away"

    def put_there(name: str, data: bytes) -> None:
        if away.exists() and name.startswith("clicks/"):
            added.put_in(away)(name.removeprefix("clicks/"), data)
        else:
            put(name, data)

    added.add(application.inputs, put_there, seconds)


def a_lost_node_while_files_are_added(application: Application) -> None:
    victim = node_of(application, "orders")
    adding = threading.Thread(target=add, args=(application, range(60, 300)))
    adding.start()
    begin = lose(application, [victim])
    adding.join()
    add(application, range(300, 360))
    application.await_event("recovered", after=begin)
    application.cluster.start_worker(victim)
    await_rows(application)


def what_was_read_is_removed(application: Application) -> None:
    # of two checkpoints behind it none needs what came before
    for _ in range(2):
        application.await_event("checkpoint", after=application.seen)
    shutil.rmtree(folder_of(application) / "orders" / "day 0")
    add(application, range(360, 400))
    await_rows(application)


def a_folder_that_is_away_holds_up_its_own_queries_alone(application: Application) -> None:
    begin, away = application.seen, application.inputs / "away"
    there = folder_of(application) / "clicks"
    there.rename(away)
    application.await_event("source-away", after=begin, source="clicks")
    before = rows_of(application, "clicks")
    add(application, range(400, 460))
    await_rows(application, "orders", "visits")
    assert rows_of(application, "clicks") == before
    away.rename(there)
    application.await_event("source-back", after=begin, source="clicks")
    await_rows(application)
    for kind in ("incident-opened", "plan"):
        assert not application.happened(kind, after=begin), kind


def a_driver_that_dies_goes_on_from_its_list(application: Application) -> None:
    application.driver.kill()
    add(application, range(460, 520))
    application.start_and_recover()
    await_rows(application)


def test_objects_that_are_added_to_a_bucket_come_out_exactly_once_through_losses(
    prepare: Prepare, server: ObjectServer, tmp_path: Path
) -> None:
    inputs, place = tmp_path / "files", f"s3://{BUCKET}/added"
    inputs.mkdir()
    (inputs / added.PLACE).write_text(place)
    bucket = ObjectFiles(place)

    def put(name: str, data: bytes) -> None:
        bucket.put({name: data})

    added.add(inputs, put, range(60))
    told = {f"spark.executorEnv.{name}": text for name, text in server.environment().items()}
    application = prepare(pipeline=added, spark=told)
    application.inputs = inputs
    application.start_and_recover()
    await_rows(application)

    begin = lose(application, [victim := node_of(application, "orders")])
    added.add(inputs, put, range(60, 120))
    application.await_event("recovered", after=begin)
    application.cluster.start_worker(victim)
    await_rows(application)

    begin = application.seen
    server.kill()
    application.await_event("source-away", after=begin, source="orders")
    server.start()
    added.add(inputs, put, range(120, 180))
    application.await_event("source-back", after=begin, source="orders")
    await_rows(application)
    assert not application.happened("incident-opened", after=begin)
    come_to_an_end(application)


def test_objects_of_any_name_are_read_and_what_is_changed_or_cut_off_is_noticed(
    server: ObjectServer, tmp_path: Path
) -> None:
    place = f"s3://{BUCKET}/named"
    bucket, names = ObjectFiles(place), ["a b.json", "ünï/100%25.json", "x=1/y#z?&+.json.gz"]
    contents = [added.content(name, [(number, "k", number)]) for number, name in enumerate(names)]
    bucket.put(dict(zip(names, contents, strict=True)))
    bucket.put({"_temporary/c.json": b"no", "d.json": b""})
    source = FileSource(place, "json", added.SCHEMA, "at", units={"at": "us"}, list_seconds=0.05)
    assert source.first(1).rows.num_rows == 1
    source.keep_in(store_files.at(tmp_path / "store"), "objects")
    assert source.latest_offsets()["0"].latest == 6
    node = pickle.loads(pickle.dumps(source))
    assert object_server.SECRET.encode() not in pickle.dumps(source)
    assert node.read("0", 0, 6).rows["value"].to_pylist() == [0, 2, 1]
    assert node.read("0", 0, 6).rejects["file_path"].to_pylist() == [
        f"{place}/{name}" for name in (names[0], names[2], names[1])
    ]
    bucket.put({names[0]: contents[1]})
    bucket.remove([names[1]])
    later = pickle.loads(pickle.dumps(source))
    with pytest.raises(DataLossError, match=r"a b\.json: is not what was listed any more"):
        later.read("0", 0, 1)
    with pytest.raises(DataLossError, match=r"100%25\.json: is not there any more"):
        later.read("0", 4, 5)
    server.kill()
    with pytest.raises(SourceAwayError, match="cannot be reached"):
        later.read("0", 2, 3)
    with pytest.raises(SourceAwayError, match="cannot be reached"):
        list(later._folder.found(recursive=True))
    server.start()
    assert later.read("0", 2, 3).rows["value"].to_pylist() == [2]


def test_parquet_in_a_bucket_is_read_by_parts_and_a_bucket_that_is_not_there_is_told(
    server: ObjectServer,  # noqa: ARG001
    tmp_path: Path,
) -> None:
    place, rows = f"s3://{BUCKET}/parts", [(number, "k", number) for number in range(1_000)]
    ObjectFiles(place).put({"a.parquet": added.content("a.parquet", rows)})
    source = FileSource(place, "parquet", event_time="at")
    assert source.schema == added.SCHEMA
    source.keep_in(store_files.at(tmp_path / "store"), "parts")
    assert source.latest_offsets()["0"].latest == 1_000
    node = pickle.loads(pickle.dumps(source))
    assert node.read("0", 990, 1_000).rows["value"].to_pylist() == [*range(990, 1_000)]
    with pytest.raises(
        InputError, match=r"specified bucket does not exist.*; or give the source a schema"
    ):
        FileSource("s3://nowhere/x", "parquet", event_time="at")
    with pytest.raises(RunError, match="specified bucket does not exist"):
        FileSource("s3://nowhere/x", "parquet", added.SCHEMA, "at").latest_offsets()


def rows_of(application: Application, source: str) -> int:
    """How many rows of a source are committed."""
    found = application.outputs().get(f"{source}-rows")
    return 0 if found is None else found.height


def await_rows(application: Application, *sources: str) -> None:
    """Wait until all rows that were added to sources are committed, without names to all."""
    for source in sources or added.FORMS:
        await_rows_of(application, source)


def await_rows_of(application: Application, source: str) -> None:
    """Wait until all rows that were added to a source are committed."""
    wanted = added.ledger(application.inputs, source).height
    application.await_condition(
        f"{wanted} rows of {source}", lambda: rows_of(application, source) == wanted
    )


def come_to_an_end(application: Application) -> None:
    """Have all input read and the run end, and see that its output is exactly right."""
    application.drain()
    application.driver.request_finish()
    assert application.await_end() == 0, application.tail()
    wanted, committed = added.expected(application.inputs), application.outputs()
    assert set(committed) == set(wanted)
    for query, rows in wanted.items():
        compare(query, committed[query].select(rows.columns), rows)
