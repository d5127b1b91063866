"""A store as a driver leaves it after a while, whose segments are short."""

import shutil
from pathlib import Path

import pytest
from whole_stores import whole

from rekindle_store import commit_segments


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_segments, "LENGTH", 4)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("built") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_segments, "LENGTH", 4)
        whole(place)
    return place


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "store"))
