"""Class-data archives: shared by clones whose Spark is the same, and by no others."""

import base64
import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rekindle.model.errors import InputError, RunError
from rekindle_local import cached_files, class_archives, class_data_training
from rekindle_local.class_archives import ClassArchives
from rekindle_local.spark_distribution import Distribution

JARS = {
    "jars/spark-core_2.13-4.3.0.jar": "core",
    "jars/connect-repl/repl.jar": "repl",
    "python/lib/pyspark.zip": "zip",
    "bin/spark-submit": "#!/bin/sh",
}


def install(clone: Path, files: dict[str, str] = JARS) -> Distribution:
    """A Spark as pip installs it into the environment of a clone."""
    home = clone / "site-packages" / "pyspark"
    lines = ["pyspark/__init__.py,,"]
    for path, text in files.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
        lines.append(f"pyspark/{path},sha256={digest.decode().rstrip('=')},{len(text)}")
    record = home.parent / "pyspark-4.3.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("\n".join(lines) + "\n")
    return Distribution(Path("/usr/bin/java"), 'openjdk version "17.0.15"', home, "2.13")


def find(tmp_path: Path, distribution: Distribution) -> ClassArchives:
    return class_archives.find_class_archives(tmp_path / "cache", distribution)


def make(archives: ClassArchives) -> None:
    """What training does, but for the training."""
    folder = archives.directory
    with cached_files.locked(folder, print), cached_files.workshop(folder) as workshop:
        class_archives.link_spark(archives, workshop)
        for place in (archives.daemon, archives.executor):
            (workshop / place.name).write_text("classes")
            cached_files.put(workshop / place.name, place)


def test_two_clones_with_the_same_spark_share_archives_and_jars(tmp_path: Path) -> None:
    first, second = (find(tmp_path, install(tmp_path / name)) for name in ("a", "b"))
    assert (second.complete, second.distribution) == (False, second.installed)
    make(first)
    assert second.complete
    assert second.distribution.spark_home == first.distribution.spark_home
    home = second.distribution.spark_home
    shared = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    assert shared == JARS.keys() - {"bin/spark-submit"}
    jar = "jars/spark-core_2.13-4.3.0.jar"
    assert os.path.samefile(home / jar, first.installed.spark_home / jar)


def test_a_clone_that_is_removed_leaves_the_archives_of_the_others_valid(tmp_path: Path) -> None:
    make(find(tmp_path, install(tmp_path / "a")))
    shutil.rmtree(tmp_path / "a")
    other = find(tmp_path, install(tmp_path / "b"))
    assert other.complete
    assert (other.distribution.spark_home / "python/lib/pyspark.zip").read_text() == "zip"


@pytest.mark.parametrize(
    "files", [{**JARS, "jars/spark-core_2.13-4.3.0.jar": "CORE"}, {**JARS, "jars/more.jar": ""}]
)
def test_another_spark_has_archives_of_its_own(tmp_path: Path, files: dict[str, str]) -> None:
    make(find(tmp_path, install(tmp_path / "a")))
    assert not find(tmp_path, install(tmp_path / "b", files)).complete


def test_another_java_has_archives_of_its_own(tmp_path: Path) -> None:
    distribution = install(tmp_path / "a")
    make(find(tmp_path, distribution))
    other = replace(distribution, java_version='openjdk version "21.0.1"')
    assert not find(tmp_path, other).complete


def test_a_spark_to_which_a_jar_was_added_is_not_shared(tmp_path: Path) -> None:
    distribution = install(tmp_path / "a")
    shared = find(tmp_path, distribution)
    (distribution.spark_home / "jars" / "driver.jar").touch()
    own = find(tmp_path, distribution)
    assert own.directory != shared.directory
    make(own)
    assert own.complete
    assert own.distribution == distribution


def test_a_spark_without_a_record_is_not_shared(tmp_path: Path) -> None:
    first, second = (install(tmp_path / name) for name in ("a", "b"))
    for distribution in (first, second):
        (distribution.spark_home.parent / "pyspark-4.3.0.dist-info" / "RECORD").unlink()
    assert find(tmp_path, first).directory != find(tmp_path, second).directory
    make(find(tmp_path, first))
    assert find(tmp_path, first).distribution == first


def test_a_damaged_archive_is_not_given_to_any_jvm(tmp_path: Path) -> None:
    archives = find(tmp_path, install(tmp_path / "a"))
    make(archives)
    option = (f"-XX:SharedArchiveFile={archives.daemon}",)
    assert class_archives.archive_option(archives.daemon) == option
    archives.daemon.write_text("class")
    assert class_archives.archive_option(archives.daemon) == ()
    assert not archives.complete


@pytest.mark.parametrize("damage", ["lost", "short"])
def test_a_damaged_shared_spark_is_not_used_and_is_made_again(tmp_path: Path, damage: str) -> None:
    make(find(tmp_path, install(tmp_path / "a")))
    archives = find(tmp_path, install(tmp_path / "b"))
    jar = archives.spark_home / "jars" / "spark-core_2.13-4.3.0.jar"
    jar.unlink()
    if damage == "short":
        jar.write_text("cor")
    assert not archives.complete
    assert archives.distribution == archives.installed
    make(archives)
    assert archives.complete


def test_a_clone_whose_jar_is_not_what_the_wheel_contained_shares_nothing(tmp_path: Path) -> None:
    distribution = install(tmp_path / "a")
    (distribution.spark_home / "jars" / "spark-core_2.13-4.3.0.jar").write_text("CORE")
    archives = find(tmp_path, distribution)
    with pytest.raises(InputError, match=r"core_2.13.*is not the file that its wheel contained"):
        make(archives)
    assert not archives.spark_home.exists()


def test_the_record_of_a_wheel_is_read_as_far_as_it_has_digests(tmp_path: Path) -> None:
    home = install(tmp_path / "a").spark_home
    assert [file.path for file in class_archives.read_record(home)] == sorted(JARS)
    assert class_archives.read_record(tmp_path) == ()


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Training runs that fail, on a machine with this cache; the list gets one entry for each."""
    runs: list[str] = []

    def fail(*_: object) -> None:
        runs.append("run")
        raise RunError(where="training application", what="no room", remedy="look")

    distribution = install(tmp_path / "a")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(class_data_training, "find_distribution", lambda: distribution)
    monkeypatch.setattr(class_data_training, "_train", fail)
    return runs


def test_archives_that_cannot_be_made_are_one_line_and_are_not_tried_again(
    failing: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    for _ in range(2):
        assert class_data_training.main() == 0
        said = capsys.readouterr().err.splitlines()
        assert len([line for line in said if "NO CLASS-DATA ARCHIVES" in line]) == 1
        assert "training application: no room" in said[-1]
    assert len(failing) == 1


def test_archives_that_cannot_be_made_are_a_failure_in_ci(
    failing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    assert class_data_training.main() == 1
    assert len(failing) == 1


def test_a_training_run_that_takes_too_long_fails_nothing_and_is_tried_again(
    failing: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_out_of_time(*_: object) -> None:
        failing.append("run")
        monkeypatch.setattr(class_data_training, "APPLICATION_SECONDS_MAX", 0.0)
        class_data_training._run_application("spark://127.0.0.1:9", "", Path("none"))

    monkeypatch.setattr(class_data_training, "_train", run_out_of_time)
    monkeypatch.setenv("CI", "true")
    for _ in range(2):
        assert class_data_training.main() == 0
        said = capsys.readouterr().err.splitlines()[-1]
        assert "NO CLASS-DATA ARCHIVES" in said
        assert "training application: has not ended within 0 s; try again" in said
    assert len(failing) == 2
