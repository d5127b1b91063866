"""Folders with entries that cannot be looked at: which file it is, and what becomes of it."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from file_inputs import ends, everything, lines, source, values, write

from rekindle.model.errors import InputError, RunError, SourceAwayError
from rekindle_spark.connectors.file_source import FileSource


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two files; `faults` of the module say what the system answers about one."""
    folder, stat = tmp_path / "in", os.stat
    folder.mkdir()

    def answer(path: Any, **given: Any) -> os.stat_result:
        fault = faults.get(Path(str(path)).name) if isinstance(path, str) else None
        if fault is not None:
            raise OSError(fault, os.strerror(fault), path)
        return stat(path, **given)

    monkeypatch.setattr(os, "stat", answer)
    faults.clear()
    return folder


faults: dict[str, int] = {}


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        (errno.EIO, SourceAwayError, "cannot be read now (Input/output error)"),
        (errno.ESTALE, SourceAwayError, "cannot be read now (Stale file handle)"),
        (errno.EACCES, RunError, "cannot be read (Permission denied)"),
    ],
)
def test_what_is_wrong_with_one_file_is_said_of_it_and_not_of_the_store(
    fault: int, kind: type[RunError], text: str, inputs: Path
) -> None:
    (inputs / "a").write_text(lines(1))
    (inputs / "b").write_text(lines(2))
    found = source(inputs)
    faults["b"] = fault
    with pytest.raises(kind) as failed:
        ends(found)
    assert type(failed.value) is kind
    assert failed.value.where == f"file {inputs}/b"
    assert failed.value.what == text
    faults.clear()
    assert values(everything(found)) == [1, 2]


def test_a_link_to_nothing_and_one_to_itself_are_no_files(inputs: Path) -> None:
    (inputs / "a").write_text(lines(1))
    (inputs / "nothing").symlink_to("nowhere")
    (inputs / "itself").symlink_to("itself")
    (inputs / "other").symlink_to("a")
    assert values(everything(source(inputs))) == [1, 1]


@pytest.mark.parametrize("fault", [errno.EIO, errno.EACCES])
def test_columns_that_cannot_be_found_out_are_refused_with_the_file(
    fault: int, inputs: Path
) -> None:
    write("parquet", inputs / "a", [1])
    faults["a"] = fault
    with pytest.raises(InputError) as refused:
        FileSource(inputs, "parquet", event_time="at")
    assert refused.value.where == f"file {inputs}/a"
    assert "give the source a schema" in refused.value.remedy
    faults.clear()
    (inputs / "a").write_bytes(b"PAR1 no more")
    with pytest.raises(InputError, match=r"cannot be read as Parquet .*; mend or remove it"):
        FileSource(inputs, "parquet", event_time="at")
    (inputs / "a").unlink()
    with pytest.raises(InputError, match="have none that says which columns there are"):
        FileSource(inputs, "parquet", event_time="at")
