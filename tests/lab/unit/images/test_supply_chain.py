"""What images hold: locks with digests, documents of what is inside, and audits of both."""

import hashlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement

from images import auditing, image_archives, image_builder, image_wheels, locking
from images.__main__ import main
from images.auditing import Package
from rekindle.model.errors import InputError

ROOT = Path(__file__).parents[4]
SCRIPTS = ROOT / "spark-images"
DIGEST = "0123456789abcdef" * 4


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {
        locking.normal(name): version
        for name, _, version in (line.partition("==") for line in lines)
    }


@pytest.mark.parametrize("extra", locking.EXTRAS)
def test_a_lock_names_all_that_its_extra_needs_at_the_versions_of_the_constraints(
    extra: str,
) -> None:
    found = locking.locked(locking.folder(ROOT) / f"{extra}.txt")
    pinned = constraints()
    assert {name: pinned[name] for name in found if name != "colorama"} == {
        name: version
        for name, version in found.items()
        if name != "colorama"  # of Windows alone
    }
    wanted = [Requirement(line) for line in image_wheels.requirements(ROOT, [extra]).splitlines()]
    reached: set[str] = set()
    while wanted:
        requirement = wanted.pop()
        name = locking.normal(requirement.name)
        if name in reached:
            continue
        reached.add(name)
        assert requirement.specifier.contains(found[name]), requirement
        for line in metadata.requires(name) or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                wanted.append(needed)
    assert len(reached) > 20


def test_what_builds_sources_is_locked_as_well() -> None:
    found = locking.locked(locking.folder(ROOT) / f"{locking.BUILD}.txt")
    assert {"setuptools", "wheel"} <= found.keys()


def test_no_lock_says_where_packages_come_from() -> None:
    for lock in locking.folder(ROOT).glob("*.txt"):
        assert "://" not in lock.read_text(), lock
        assert "--index" not in lock.read_text(), lock


@pytest.mark.parametrize("line", ["kazoo==2.11.0\n", "kazoo>=2 --hash=sha256:ab\n"])
def test_a_package_without_version_and_digest_is_refused(line: str, tmp_path: Path) -> None:
    lock = tmp_path / "run.txt"
    lock.write_text(line)
    with pytest.raises(InputError, match=r"kazoo.* has no version and SHA-256; run `make lock`"):
        locking.locked(lock)


def test_every_dockerfile_refuses_a_base_without_a_digest() -> None:
    for file in (ROOT / "Dockerfile", SCRIPTS / "Dockerfile"):
        text = file.read_text()
        first = text.index("FROM ${BASE_IMAGE}")
        assert 'pinned.sh "${BASE_IMAGE}"' in text[first : text.index("FROM", first + 1)], file


@pytest.mark.parametrize(
    ("base", "code"),
    [
        ("python:3.12-slim", 2),
        ("python:3.12-slim@sha256:12", 2),
        (f"python:3.12-slim@sha256:{DIGEST}", 0),
        ("localhost/rekindle-base-spark:1", 0),
    ],
)
def test_a_base_is_named_by_its_digest(base: str, code: int) -> None:
    done = subprocess.run(
        ["sh", str(SCRIPTS / "pinned.sh"), base], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert ("give --build-arg BASE_IMAGE=NAME@sha256:DIGEST" in done.stderr) == (code == 2)


def test_a_base_without_a_digest_is_refused_before_anything_is_built(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["build", "--base-image", "debian:13"]) == 2
    assert "--base-image: 'debian:13' is not named by its digest" in capsys.readouterr().err
    image_builder.check_pinned(f"debian:13@sha256:{DIGEST}")


def test_wheels_with_other_bytes_than_their_sums_are_not_installed(tmp_path: Path) -> None:
    """The very step of packages.sh, on a folder as `make images` fills it."""
    (tmp_path / "a-1-py3-none-any.whl").write_bytes(b"as it was fetched")
    sums = "".join(image_wheels._sums(tmp_path))
    (tmp_path / image_wheels.SUMS).write_text(sums)
    (line,) = [
        one for one in (SCRIPTS / "packages.sh").read_text().splitlines() if "sha256sum" in one
    ]
    command = line.strip().replace("$wheels", str(tmp_path))
    assert subprocess.run(["sh", "-euc", command]).returncode == 0
    (tmp_path / "a-1-py3-none-any.whl").write_bytes(b"as somebody left it")
    assert subprocess.run(["sh", "-euc", command], capture_output=True).returncode != 0


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", SCRIPTS / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_root(root: Path) -> None:
    """The files of an image: a distribution, a Debian package, and jars."""
    found = root / "opt/rekindle/lib/python3.12/site-packages/Kazoo_x-2.11.0.dist-info"
    found.mkdir(parents=True)
    (found / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: Kazoo_x\nVersion: 2.11.0\nLicense-Expression: Apache-2.0\n"
    )
    dpkg = root / "var/lib/dpkg"
    dpkg.mkdir(parents=True)
    (dpkg / "status").write_text(
        "Package: bash\nStatus: install ok installed\nVersion: 5.2.15-2+b7\nArchitecture: amd64\n\n"
        "Package: gone\nStatus: purge ok not-installed\nVersion: 1\nArchitecture: amd64\n"
    )
    jars = root / "opt/spark/jars"
    jars.mkdir(parents=True)
    with zipfile.ZipFile(jars / "netty-all-4.2.1.Final.jar", "w") as jar:
        said = "groupId=io.netty\nartifactId=netty-all\nversion=4.2.1.Final\n"
        jar.writestr("META-INF/maven/io.netty/netty-all/pom.properties", said)
    (jars / "odd.jar").write_bytes(b"no zip")


def test_a_document_names_what_is_installed_and_is_the_same_each_time(
    tmp_path: Path, sbom: ModuleType
) -> None:
    make_root(tmp_path)
    document = sbom.document("rekindle", tmp_path)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert [part["purl"] for part in document["components"]] == [
        "pkg:deb/debian/bash@5.2.15-2%2Bb7?arch=amd64",
        "pkg:generic/odd@0",
        "pkg:maven/io.netty/netty-all@4.2.1.Final",
        "pkg:pypi/kazoo-x@2.11.0",
    ]
    by_name = {part["name"]: part for part in document["components"]}
    assert by_name["kazoo-x"]["licenses"] == [{"expression": "Apache-2.0"}]
    digest = hashlib.sha256(b"no zip").hexdigest()
    assert by_name["odd"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert sbom.document("rekindle", tmp_path) == document
    (tmp_path / "opt/spark/jars/odd.jar").write_bytes(b"another")
    assert sbom.document("rekindle", tmp_path)["serialNumber"] != document["serialNumber"]


def test_the_document_is_read_from_the_topmost_layer_of_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    with tarfile.open(archive, "w") as opened:
        for name, content in (("a.tar", b"below"), ("b.tar", b"above"), ("c.tar", None)):
            add(opened, name, layer(content))
        add(opened, "config.json", b"{}")
        manifest = [{"Config": "config.json", "Layers": ["a.tar", "b.tar", "c.tar"]}]
        add(opened, "manifest.json", json.dumps(manifest).encode())
    assert image_archives.file(archive, image_builder.SBOM) == b"above"
    with pytest.raises(InputError, match="has no /opt/none; build the image again"):
        image_archives.file(archive, "opt/none")


def layer(content: bytes | None) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as opened:
        if content is not None:
            add(opened, f"./{image_builder.SBOM}", content)
    return made.getvalue()


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def record(name: str, *, ecosystem: str = "PyPI", **affected: Any) -> dict[str, Any]:
    package = {"ecosystem": ecosystem, "name": name}
    return {
        "id": f"OSV-{name}",
        "modified": "2026-11-20T10:00:00Z",
        "summary": "reads too\nmuch",
        "affected": [{"package": package, **affected}],
    }


def between(*events: tuple[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": [{kind: at} for kind, at in events]}]}


@pytest.mark.parametrize(
    ("affected", "holds"),
    [
        ({"versions": ["2.11.0"]}, True),
        ({"versions": ["2.10.0"]}, False),
        (between(("introduced", "0"), ("fixed", "2.11.0")), False),
        (between(("introduced", "0"), ("fixed", "2.12")), True),
        (between(("introduced", "2.11.1")), False),
        (between(("introduced", "1.0"), ("last_affected", "2.11.0")), True),
        (between(("introduced", "1.0"), ("last_affected", "2.10.9")), False),
        (between(("fixed", "2.0"), ("introduced", "0"), ("introduced", "2.10")), True),
        (between(("introduced", "an odd one"), ("fixed", "2.12")), True),
    ],
)
def test_an_advisory_holds_for_the_versions_that_it_names(
    affected: dict[str, Any], holds: bool, tmp_path: Path
) -> None:
    (tmp_path / "one.json").write_text(json.dumps(record("Kazoo", **affected)))
    found = auditing.audit([Package("PyPI", "kazoo", "2.11.0")], auditing.read(tmp_path))
    assert bool(found) == holds


def test_a_jar_is_compared_by_the_lists_of_maven_and_debians_packages_are_counted(
    tmp_path: Path, sbom: ModuleType
) -> None:
    make_root(tmp_path / "root")
    document = tmp_path / "image.cdx.json"
    document.write_text(json.dumps(sbom.document("rekindle-spark", tmp_path / "root")))
    packages, others = auditing.of_document(document)
    assert others == 2
    database = tmp_path / "all.zip"
    with zipfile.ZipFile(database, "w") as made:
        said = record("io.netty:netty-all", ecosystem="Maven", versions=["4.2.1.Final"])
        made.writestr("OSV-netty.json", json.dumps(said))
    (found,) = auditing.audit(packages, auditing.read(database))
    assert (
        str(found)
        == "io.netty:netty-all 4.2.1.Final (Maven): OSV-io.netty:netty-all reads too much"
    )


def test_an_audit_says_what_holds_and_ends_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locked = locking.locked(locking.folder(ROOT) / "run.txt")
    bad = record(
        "kazoo", versions=[locked["kazoo"]], **between(("introduced", "0"), ("fixed", "99"))
    )
    bad["modified"] = datetime.now(UTC).isoformat()
    (tmp_path / "bad.json").write_text(json.dumps(bad))
    assert main(["audit", "--advisories", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"kazoo {locked['kazoo']} (PyPI): OSV-kazoo reads too much; mended in 99" in said
    (tmp_path / "bad.json").write_text(json.dumps(bad | {"withdrawn": "2026-11-21T00:00:00Z"}))
    assert main(["audit", "--advisories", str(tmp_path)]) == 0


def test_an_audit_without_a_database_says_that_it_cannot(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit"]) == 2
    assert "is not named, so nothing can be said about these packages" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "has no records"),
        ("[]", "is no record of OSV"),
        ("no JSON", "is no record of OSV"),
        (
            json.dumps(record("kazoo") | {"modified": "2020-01-01T00:00:00Z"}),
            "nothing newer than 2020",
        ),
    ],
)
def test_a_database_that_is_none_or_old_is_refused(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "one.json").write_text(content)
    assert main(["audit", "--advisories", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert main(["audit", "--advisories", str(tmp_path / "nowhere.zip")]) == 2


def test_the_project_says_its_licence_and_where_to_report() -> None:
    licence = (ROOT / "LICENSE").read_text()
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
    assert "## Report" in (ROOT / "SECURITY.md").read_text()


def test_the_script_prints_a_document_where_only_the_standard_library_is(tmp_path: Path) -> None:
    make_root(tmp_path)
    command = [sys.executable, "-ISB", str(SCRIPTS / "sbom.py"), "x", "--root", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    assert len(json.loads(done.stdout)["components"]) == 4
