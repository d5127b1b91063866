"""The jar: current or not by what it was built from, and never half there."""

import shutil
import zipfile
from pathlib import Path

import pytest

from rekindle.model.errors import InputError, RunError
from rekindle_spark.spark import jvm_build

needs_compiler = pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one small source of its own, in place of the runtime's."""
    (tmp_path / "Small.java").write_text("package small; class Small { int value = 1; }\n")
    monkeypatch.setattr(jvm_build, "FOLDER", tmp_path)
    monkeypatch.setattr(jvm_build, "JAR", tmp_path / "small.jar")
    return tmp_path


@needs_compiler
def test_a_jar_is_built_once_and_again_when_a_source_changes(folder: Path) -> None:
    assert not jvm_build.is_current()
    built = Path(jvm_build.path())
    assert jvm_build.is_current()
    before = built.read_bytes()
    assert jvm_build.path() == str(built)
    (folder / "Small.java").write_text("package small; class Small { int value = 2; }\n")
    assert not jvm_build.is_current()
    jvm_build.path()
    assert jvm_build.is_current()
    assert built.read_bytes() != before


@needs_compiler
def test_the_same_sources_give_the_same_bytes(folder: Path) -> None:
    jvm_build.build()
    before = (folder / "small.jar").read_bytes()
    jvm_build.build()
    assert (folder / "small.jar").read_bytes() == before
    with zipfile.ZipFile(folder / "small.jar") as archive:
        assert archive.namelist() == ["META-INF/MANIFEST.MF", "small/Small.class"]


@needs_compiler
def test_a_source_that_does_not_compile_leaves_the_old_jar(folder: Path) -> None:
    jvm_build.build()
    before = (folder / "small.jar").read_bytes()
    (folder / "Small.java").write_text("class Small {")
    with pytest.raises(RunError, match=r"(?s)javac ends with 1.*Small\.java"):
        jvm_build.path()
    assert (folder / "small.jar").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["Small.java", "small.jar"]


@needs_compiler
def test_a_jar_that_cannot_be_written_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm_build, "JAR", folder / "nowhere" / "small.jar")
    with pytest.raises(InputError, match=r"small\.jar: is missing or out of date, .*written"):
        jvm_build.path()


def test_a_broken_jar_is_not_current(folder: Path) -> None:
    (folder / "small.jar").write_bytes(b"PK nothing")
    assert not jvm_build.is_current()


def test_without_a_compiler_the_error_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    assert jvm_build.main() == 2
    assert "javac: is not to be found; install a JDK 17 or newer" in capsys.readouterr().err


def test_an_old_compiler_is_refused_with_its_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = folder / "javac"
    compiler.write_text("#!/bin/sh\necho javac 11.0.2\n")
    compiler.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    with pytest.raises(InputError, match=r"is javac 11\.0\.2 .*install a JDK 17"):
        jvm_build.path()


def test_a_wheel_without_sources_uses_the_jar_that_it_brings(folder: Path) -> None:
    (folder / "Small.java").unlink()
    with pytest.raises(InputError, match="is missing, and so are its sources; run `make setup`"):
        jvm_build.path()
    (folder / "small.jar").write_bytes(b"as shipped")
    assert jvm_build.path() == str(folder / "small.jar")
