"""What a path leads to is said in words where it is no file."""

import os
import socket
from pathlib import Path

import pytest

from rekindle.model import path_kinds


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # the names of sockets are short
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("gone")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("file", ""),
        ("link", ""),
        (".", "is a folder"),
        ("pipe", "is a named pipe"),
        ("socket", "is a socket"),
        ("/dev/null", "is a device"),
        ("loop", "is a link that leads back to itself"),
        ("dangling", "is a link to gone, which is not there"),
        ("gone", "is not there"),
        ("file/below", "is not there"),
        ("x" * 5000, "is not there"),
        ("\0", "is no path of a file"),
    ],
)
def test_what_is_no_file_is_called_by_its_kind(folder: Path, name: str, said: str) -> None:
    assert path_kinds.other_than_file(name) == said
    if "\0" not in name:
        assert path_kinds.other_than_file(folder / name) == said
