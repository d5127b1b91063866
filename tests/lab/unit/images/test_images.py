"""The images: what their packages are, what the entry point runs, and what is in an archive."""

import io
import json
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from images import base_images, image_archives, image_builder, image_programs, image_wheels
from images.__main__ import main
from rekindle.model.errors import InputError, RunError

ROOT = Path(__file__).parents[4]
ENTRYPOINT = ROOT / "spark-images" / "entrypoint.sh"
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.0.2:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "machines-0",
    "SPARK_EXECUTOR_POD_IP": "10.1.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "machines-0-exec-3",
}
APT_CONFIG = """#!/bin/sh
echo 'Acquire::http '
echo 'Acquire::http::Proxy http://user:secret@proxy'
echo 'Acquire::Languages:: none'
"""
# Reads the settings and calls the hook as mmdebstrap does, on a root that is there.
MMDEBSTRAP = """#!/bin/sh
echo "$@" > "$MADE/called"
for option; do
  case $option in
    --aptopt=*) cat "${option#*=}" > "$MADE/given" ;;
    --customize-hook=*) sh -c "${option#*=}" exec "$MADE/root" ;;
  esac
done
"""


def enter(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The entry point where `java` and spark-submit only print what they were called with."""
    for name in ("java", "bin/spark-submit"):
        program = folder / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" {Path(name).name} "$@"\n')
        program.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", str(ENTRYPOINT), *arguments],
        env={"PATH": path, "SPARK_HOME": str(folder), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
    )


def make_jars(folder: Path, *names: str) -> list[str]:
    (folder / "jars").mkdir()
    for name in names:
        (folder / "jars" / name).touch()
    return [f"{folder}/jars/{name}" for name in names]


def test_an_executor_is_started_as_spark_says_in_its_variables(tmp_path: Path) -> None:
    jars = make_jars(tmp_path, "a.jar", "b.jar")
    (tmp_path / "executor.jsa").touch()  # is not for a class path that begins otherwise
    options = {"SPARK_JAVA_OPT_10": "-Dlast=of two", "SPARK_JAVA_OPT_2": "-Dfirst=1"}
    done = enter(tmp_path, "executor", SPARK_CLASSPATH="/more/*", **EXECUTOR, **options)
    said = done.stdout.splitlines()
    assert said[:5] == ["java", "-Dfirst=1", "-Dlast=of two", "-Xms512m", "-Xmx512m"]
    paths = said[said.index("-cp") + 1].split(":")
    assert paths == ["/more/*", f"{tmp_path}/conf", *jars, str(tmp_path)]
    assert said[said.index("--hostname") + 1] == "10.1.0.7"
    assert said[-2:] == ["--podName", "machines-0-exec-3"]


def test_an_executor_has_archived_classes_where_jars_are_those_of_the_archive(
    tmp_path: Path,
) -> None:
    archived = make_jars(tmp_path, "a.jar", "b.jar", "later.jar")[:2]
    (tmp_path / "executor.jsa").touch()
    (tmp_path / "executor.classpath").write_text(":".join(archived))
    said = enter(tmp_path, "executor", SPARK_JAVA_OPT_0="-Xlog:cds", **EXECUTOR).stdout.splitlines()
    assert said[1:3] == [f"-XX:SharedArchiveFile={tmp_path}/executor.jsa", "-Xlog:cds"]
    paths = said[said.index("-cp") + 1].split(":")
    own = f"{tmp_path}/jars/later.jar"
    assert paths == [*archived, f"{tmp_path}/conf", own, str(tmp_path)]


def test_a_driver_is_submitted_in_its_own_pod_with_what_it_was_given(tmp_path: Path) -> None:
    arguments = ("driver", "--properties-file", "/opt/spark/conf/spark.properties", "run.py", "a b")
    done = enter(tmp_path, *arguments, SPARK_DRIVER_BIND_ADDRESS="10.1.0.2")
    said = done.stdout.splitlines()
    assert said[:3] == ["spark-submit", "--deploy-mode", "client"]
    assert "spark.driver.bindAddress=10.1.0.2" in said
    assert said[-2:] == ["run.py", "a b"]


def test_anything_else_is_run_as_it_stands(tmp_path: Path) -> None:
    done = enter(tmp_path, "printf", "%s-%s", "a b", "c")
    assert (done.returncode, done.stdout) == (0, "a b-c")


def test_a_pod_that_spark_has_not_made_is_told_what_is_missing(tmp_path: Path) -> None:
    given = {name: value for name, value in EXECUTOR.items() if name != "SPARK_EXECUTOR_POD_IP"}
    done = enter(tmp_path, "executor", **given)
    assert done.returncode == 2
    assert done.stderr == "SPARK_EXECUTOR_POD_IP: is not set; let Spark make the pod\n"


def test_requirements_are_those_of_the_extras_that_they_name() -> None:
    found = image_wheels.requirements(ROOT, ["run"]).splitlines()
    names = {line.partition(">")[0].partition("=")[0] for line in found}
    assert {"pyspark", "kazoo", "typer", "polars"} <= names
    assert not {name for name in names if name.startswith("rekindle")}
    assert "duckdb" not in names
    assert len(found) == len(set(found))


def test_an_image_has_another_digest_when_what_goes_in_is_another() -> None:
    spark, operator = image_builder.IMAGES["spark"], image_builder.IMAGES["operator"]
    digests = [image_builder.digest(spark, None), image_builder.digest(operator, None)]
    digests += [image_builder.digest(spark, "debian:13")]
    assert len(set(digests)) == 3
    assert image_builder.digest(spark, None) == digests[0]


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def test_layers_are_told_with_their_sizes_and_what_made_them(tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    made = [{"created_by": "base"}, {"created_by": "ENV x", "empty_layer": True}, {}]
    with tarfile.open(file, "w") as archive:
        add(archive, "aa.tar", b"x" * 2_000_000)
        add(archive, "bb.tar", b"y")
        link = tarfile.TarInfo("cc/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../bb.tar"
        archive.addfile(link)
        add(archive, "config.json", json.dumps({"history": made}).encode())
        manifest = [{"Config": "config.json", "Layers": ["aa.tar", "cc/layer.tar"]}]
        add(archive, "manifest.json", json.dumps(manifest).encode())
    found = image_archives.layers(file)
    assert [(layer.size_bytes, layer.made_by) for layer in found] == [(2_000_000, "base"), (1, "")]
    assert image_archives.shown(file).splitlines()[-1] == "     2.0  MB"


@pytest.mark.parametrize("manifest", [None, b"no JSON", b"[]", b"[1]", b'[{"Config": "none"}]'])
def test_what_is_no_archive_of_an_image_is_refused(
    manifest: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "image.tar"
    file.write_text("no archive")
    if manifest is not None:
        with tarfile.open(file, "w") as archive:
            add(archive, "manifest.json", manifest)
    assert main(["layers", str(file)]) == 2
    assert f"{file}: is no archive of one image" in capsys.readouterr().err


def test_a_base_keeps_nothing_of_how_this_machine_reaches_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, sources = tmp_path / "root", tmp_path / "sources.list"
    for name in ("apt.conf.d/99mmdebstrap", "sources.list", "sources.list.d/0000our.sources"):
        (root / "etc" / "apt" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "etc" / "apt" / name).write_text("a secret")
    for name in ("resolv.conf", "hostname"):
        (root / "etc" / name).write_text("a secret")
    sources.write_text(f"deb http://user:secret@mirror {base_images.SUITE} main")
    for name, script in (("apt-config", APT_CONFIG), ("mmdebstrap", MMDEBSTRAP)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(base_images, "SOURCES", (str(sources),))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("MADE", str(tmp_path))
    base_images.make(base_images.SPARK, tmp_path / "base.tar", log=tmp_path / "log")
    given = (tmp_path / "given").read_text()
    assert given == 'Acquire::http::Proxy "http://user:secret@proxy";\n'
    assert "secret" not in (tmp_path / "called").read_text()
    assert [file.read_text() for file in root.rglob("*") if file.is_file()] == ["", ""]
    assert not (tmp_path / "base.apt").exists()


def test_a_base_with_another_python_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root.tar"
    with tarfile.open(root, "w") as archive:
        add(archive, "./usr/bin/python3.99", b"")
    version = base_images.python_version(root)
    with pytest.raises(InputError, match=r"the base's is 3\.99: .* run this with Python 3\.99"):
        image_wheels.check_version(version)
    image_wheels.check_version((sys.version_info[0], sys.version_info[1]))


def test_a_program_that_is_missing_is_named_with_its_package() -> None:
    with pytest.raises(InputError, match="on Debian `apt-get install somewhere`"):
        image_programs.where_is("nobody-has-this", "somewhere")


def test_a_program_that_fails_says_its_last_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("earlier\n")
    with pytest.raises(RunError, match=f"sh -c: no room; see {log}"):
        image_programs.run(["sh", "-c", "echo building; echo no room >&2; exit 3"], log=log)


def test_the_scripts_of_the_images_can_be_run() -> None:
    for script in (ROOT / "spark-images").glob("*.sh"):
        assert script.stat().st_mode & stat.S_IXUSR, script
