"""A checkpoint store on HDFS: a real name node and data node, which are killed now and then."""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import name_node
import pytest
from file_stories import (
    STORIES,
    Story,
    a_checkpoint_that_comes_after_a_newer_driver_has_started_does_not_count,
    a_newer_driver_fences_an_older_one,
    late_removals_of_a_fenced_driver_remove_nothing_that_counts,
    output_is_read_as_it_was_committed,
)
from name_node import NameNode

from rekindle.model.errors import RunError
from rekindle_store import store_files
from rekindle_store.hdfs_files import UNFINISHED, HdfsFiles

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameNode]:
    """It runs; who kills it starts it again."""
    node = NameNode(jar=name_node.archive(), folder=tmp_path_factory.mktemp("hdfs") / "node")
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture
def place(node: NameNode) -> str:
    """The place of a store that nobody has used: what is known of one is kept for a process."""
    return f"{node.place}/stores/{next(NUMBERS)}"


@pytest.fixture
def store(place: str) -> HdfsFiles:
    files = HdfsFiles(place)
    for folder in ("commits", "checkpoints"):
        files.make_folder(folder)
    return files


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_on_hdfs(story: Story, store: HdfsFiles) -> None:
    story(store)
    assert store.names(UNFINISHED) == []


def test_a_newer_driver_fences_an_older_one(place: str) -> None:
    a_newer_driver_fences_an_older_one(place)


def test_a_late_checkpoint_of_an_older_driver_does_not_count(place: str) -> None:
    a_checkpoint_that_comes_after_a_newer_driver_has_started_does_not_count(place)


def test_late_removals_of_a_fenced_driver_remove_nothing_that_counts(place: str) -> None:
    late_removals_of_a_fenced_driver_remove_nothing_that_counts(place)


def test_output_on_hdfs_is_read_as_it_was_committed(place: str) -> None:
    output_is_read_as_it_was_committed(place)


def test_a_sound_place_is_accepted_and_nothing_is_left_there(place: str) -> None:
    store_files.check(place)
    assert HdfsFiles(place).names("") == []


def test_folders_go_with_the_last_of_their_files_but_those_of_output_stay(
    store: HdfsFiles,
) -> None:
    for folder in ("outputs", "outputs/hourly", "checkpoints/1", "checkpoints/2"):
        store.make_folder(folder)
    names = ["outputs/hourly/a", "checkpoints/1/a", "checkpoints/2/a", "checkpoints/2/b"]
    store.put(dict.fromkeys(names, b"rows"))
    store.remove(names[:3])
    left = store.client.list_status(store.root, recursive=True)
    folders = {one.path.removeprefix(f"{store.root}/") for one in left if one.isdir}
    assert folders == {"commits", "checkpoints", "checkpoints/2", "outputs", "outputs/hourly"} | (
        folders & {UNFINISHED}
    )


def test_what_is_written_outlives_a_killed_node_and_its_absence_is_no_answer(
    node: NameNode, store: HdfsFiles
) -> None:
    store.create("commits/1.json", b"one")
    store.put({"checkpoints/2.json": b"two"})
    node.kill()
    attempts = (
        lambda: store.create("commits/2.json", b"one"),
        lambda: store.put({"commits/2.json": b"one"}),
        lambda: store.read("commits/2.json"),
        lambda: store.names("commits"),
        lambda: store.remove(["commits/2.json"]),
        lambda: store_files.check(store.place),
    )
    for attempt in attempts:
        with pytest.raises((OSError, RunError)) as error:
            attempt()
        assert not isinstance(error.value, FileNotFoundError | FileExistsError)
    node.start()
    assert store.read("commits/1.json") == b"one"
    assert store.read("checkpoints/2.json") == b"two"
    with pytest.raises(FileExistsError):
        store.create("commits/1.json", b"another")


def test_a_server_that_does_not_answer_is_said_at_the_start(
    tmp_path: Path,
) -> None:
    pipeline = tmp_path / "pipeline.py"
    pipeline.write_text(
        "from rekindle_spark.pipeline.steps import Pipeline\ndef pipeline(): return Pipeline('p')"
    )
    place = "hdfs://127.0.0.1:1/store"
    line = ["run", str(pipeline), "--store", place, "--master", "spark://127.0.0.1:9"]
    # not in this process, which has used clients with threads and cannot fork any more
    command = [sys.executable, "-m", "rekindle_cli", *line]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    said = ended.stderr
    assert said.startswith(f"checkpoint store {place}: does not answer (Connection refused")
    assert "HADOOP_CONF_DIR" in said
