"""Jars of a broker that cannot be fetched end with the cause and a remedy; others are kept."""

from pathlib import Path

import pytest

from rekindle.model.errors import InputError
from rekindle_local import kafka_broker


def environment(folder: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(folder)}


def program(folder: Path, script: str) -> None:
    folder.mkdir()
    (folder / "mvn").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "mvn").chmod(0o755)


def test_without_maven_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"Maven \(mvn\) is not installed; install Maven"):
        kafka_broker.find_jars(environment(tmp_path), lambda _: None)


def test_what_maven_says_is_shown_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "echo no route to the repository >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(InputError, match=r"could not be fetched \(no route to the repository\)"):
        kafka_broker.find_jars(environment(tmp_path), lambda _: None)
    assert not list(tmp_path.rglob("*.jar"))


def test_jars_are_fetched_once_and_again_where_one_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'for one in "$@"; do case $one in -Doutput*) to=${one#*=};; esac; done; mkdir $to'
    program(tmp_path / "bin", f"{script}; echo jar > $to/kafka.jar")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    said: list[str] = []
    for fetched in (1, 1, 2):
        folder = kafka_broker.find_jars(environment(tmp_path), said.append)
        assert len(said) == fetched
        if fetched == len(said) == 1 and (folder / "seen").exists():
            (folder / "kafka.jar").write_text("damaged")
        (folder / "seen").touch()
    assert (folder / "kafka.jar").read_text() == "jar\n"
