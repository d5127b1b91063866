"""Stories that hold for the files of any store, on a disk or on a server: told of each, not of one.

tests/unit/test_files.py tells them of a folder, tests/integration/test_object_store.py of S3.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from rekindle_spark import files as places
from rekindle_spark.files import Files

__all__ = ["STORIES", "Story"]

Story = Callable[[Files], None]
WRITERS = 16


def of_many_writers_of_a_file_that_must_not_be_there_one_succeeds(files: Files) -> None:
    def create(writer: int) -> bytes | None:
        content = str(writer).encode()
        try:
            files.create("commits/1.json", content)
        except FileExistsError:
            return None
        return content

    with ThreadPoolExecutor(WRITERS) as pool:
        made = [content for content in pool.map(create, range(4 * WRITERS)) if content]
    assert [files.read("commits/1.json")] == made


def ones_own_content_counts_as_made_and_anothers_does_not(files: Files) -> None:
    for _ in range(2):
        files.create("commits/1.json", b"mine")
    with pytest.raises(FileExistsError):
        files.create("commits/1.json", b"yours")
    assert files.read("commits/1.json") == b"mine"


def what_is_put_takes_the_place_of_what_is_there(files: Files) -> None:
    files.make_folder("outputs")
    files.make_folder("outputs/delays")
    several = {f"outputs/delays/{number}.parquet": b"%d" % number for number in range(40)}
    large = bytes(range(256)) * 50_000
    files.put(several)
    files.put({"outputs/delays/0.parquet": large, "outputs/delays/1.parquet": b""})
    assert files.read("outputs/delays/0.parquet") == large
    assert files.read("outputs/delays/1.parquet") == b""
    assert files.read("outputs/delays/2.parquet") == b"2"


def files_are_listed_with_those_of_folders_below(files: Files) -> None:
    files.make_folder("checkpoints/3")
    files.put({"checkpoints/3.json": b"record", "checkpoints/3/rows-0.state": b"state"})
    files.create("commits/3.json", b"another")
    assert sorted(files.names("checkpoints")) == ["3.json", "3/rows-0.state"]
    assert files.names("offsets") == []


def what_is_removed_is_gone_and_so_is_what_never_was_there(files: Files) -> None:
    files.make_folder("checkpoints/3")
    files.put({"checkpoints/3/rows-0.state": b"state", "checkpoints/3.json": b"record"})
    files.remove(["checkpoints/3/rows-0.state", "checkpoints/2.json"])
    files.remove([])
    assert files.names("checkpoints") == ["3.json"]


def a_file_that_is_not_there_is_told_from_a_store_that_is_away(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.read("commits/7.json")
    assert not places.exists(files, "finish")
    files.put({"finish": b""})
    assert places.exists(files, "finish")


STORIES: tuple[Story, ...] = (
    of_many_writers_of_a_file_that_must_not_be_there_one_succeeds,
    ones_own_content_counts_as_made_and_anothers_does_not,
    what_is_put_takes_the_place_of_what_is_there,
    files_are_listed_with_those_of_folders_below,
    what_is_removed_is_gone_and_so_is_what_never_was_there,
    a_file_that_is_not_there_is_told_from_a_store_that_is_away,
)
