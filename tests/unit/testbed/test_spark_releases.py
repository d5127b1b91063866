"""Releases of Spark in the cache: installed once, whole or not at all, removed with the rest."""

import sys
from pathlib import Path

import pytest

from testbed import spark_releases, test_programs

# In place of Python with pip: pip has no release 4.0.5, and writes each call down.
PIP = """#!/bin/sh
echo "$@" >> "$CALLS"
for word do
  [ "$before" = --target ] && target=$word
  before=$word
done
mkdir -p "$target/pyspark"
if [ "$word" = pyspark==4.0.5 ]; then
  echo "ERROR: No matching distribution found for $word" >&2
  exit 1
fi
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own; returns the file with the calls of pip."""
    pip = tmp_path / "python"
    pip.write_text(PIP)
    pip.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(pip))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("REKINDLE_TESTBED", str(tmp_path / "cache"))
    return tmp_path / "calls"


def test_a_release_is_installed_once(calls: Path) -> None:
    said: list[str] = []
    assert spark_releases.find("3.5.9") is None
    assert spark_releases.install(["3.5.9"], said.append) == []
    found = spark_releases.find("3.5.9")
    assert found is not None
    assert (found / "pyspark").is_dir()
    assert "installing Spark 3.5.9" in said[0]
    assert spark_releases.install(["3.5.9"], said.append) == []
    assert len(calls.read_text().splitlines()) == len(said) == 1


@pytest.mark.usefixtures("calls")
def test_where_pip_cannot_get_a_release_the_others_are_installed() -> None:
    (failure,) = spark_releases.install(["4.0.5", "4.1.4"], lambda _: None)
    assert "pip install pyspark==4.0.5" in str(failure)
    assert "No matching distribution found" in str(failure)
    assert spark_releases.find("4.0.5") is None, "nothing that is half there"
    assert spark_releases.find("4.1.4") is not None


@pytest.mark.usefixtures("calls")
def test_releases_are_removed_with_the_rest_of_the_cache(tmp_path: Path) -> None:
    spark_releases.install(["4.2.1"], lambda _: None)
    assert test_programs.clean_cache({"REKINDLE_TESTBED": str(tmp_path / "cache")}) == []
    assert spark_releases.find("4.2.1") is None
