"""Prints what is in the image that it runs in, as a CycloneDX 1.6 document (JSON).

    sbom.py NAME [--root FOLDER]     NAME of the image; FOLDER holds opt/ and var/, / otherwise

Components are Python distributions and jars below /opt, and Debian's packages. It reads what is
installed, so that nothing in it was only meant to be there. The same content gives the same bytes:
the serial number is made of the components, and there is no time.
"""

import argparse
import hashlib
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

SPEC_VERSION = "1.6"
NAMESPACE = uuid.UUID("5f7a7f5e-4d0f-4a53-9a33-6d1c8f2b6b55")
JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d[^/]*)\.jar")
PROPERTIES = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")
CHUNK_BYTES = 1 << 20


def document(name: str, root: Path) -> dict[str, Any]:
    """The whole document for the image `name`, whose files are below `root`."""
    found = {part["bom-ref"]: part for part in _components(root)}
    components = [found[reference] for reference in sorted(found)]
    content = json.dumps([name, components], sort_keys=True)
    version = next((part["version"] for part in components if part["name"] == "rekindle"), "0")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": name,
                "name": name,
                "version": version,
            }
        },
        "components": components,
    }


def _components(root: Path) -> Iterator[dict[str, Any]]:
    yield from _of_python(sorted(root.glob("opt/rekindle/lib/python*/site-packages")))
    yield from _of_debian(root / "var" / "lib" / "dpkg")
    for jar in sorted((root / "opt").rglob("*.jar")):
        if not jar.is_symlink() and jar.is_file():
            yield _of_jar(jar)


def _component(purl: str, name: str, version: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        **more,
    }


def _of_python(folders: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for distribution in distributions(path=[str(folder) for folder in folders]):
        name = re.sub(r"[-_.]+", "-", distribution.name).lower()
        version = distribution.version
        yield _component(
            f"pkg:pypi/{name}@{quote(version)}", name, version, **_licence(distribution)
        )


def _licence(distribution: Distribution) -> dict[str, Any]:
    """Its licence, where its metadata says it in one line; an expression of SPDX comes first."""
    expression = distribution.metadata.get("License-Expression")
    if expression:
        return {"licenses": [{"expression": expression}]}
    name = (distribution.metadata.get("License") or "").strip()
    return {"licenses": [{"license": {"name": name}}]} if name and "\n" not in name else {}


def _of_debian(dpkg: Path) -> Iterator[dict[str, Any]]:
    """Debian's packages, from dpkg's status, or its parts in images without dpkg."""
    files = [dpkg / "status", *sorted((dpkg / "status.d").glob("*"))]
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        for paragraph in text.split("\n\n"):
            said = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
            if "Package" in said and said.get("Status", "install ok installed").endswith(
                " installed"
            ):
                yield _debian(said["Package"], said["Version"], said.get("Architecture", "all"))


def _debian(name: str, version: str, architecture: str) -> dict[str, Any]:
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}"
    return _component(purl, name, version)


def _of_jar(path: Path) -> dict[str, Any]:
    """A jar by what Maven has put into it; by its name where that is nothing, or more than one."""
    digest = [{"alg": "SHA-256", "content": _sha256(path)}]
    matched = JAR.fullmatch(path.name)
    name, version = (matched["name"], matched["version"]) if matched else (path.stem, "0")
    for group, artifact, said in _coordinates(path):
        if artifact == name or not matched:
            purl = f"pkg:maven/{quote(group)}/{quote(artifact)}@{quote(said)}"
            return _component(purl, artifact, said, group=group, hashes=digest)
    purl = f"pkg:generic/{quote(name)}@{quote(version)}"
    return _component(purl, name, version, hashes=digest)


def _coordinates(path: Path) -> Iterator[tuple[str, str, str]]:
    try:
        with zipfile.ZipFile(path) as jar:
            for entry in filter(PROPERTIES.fullmatch, jar.namelist()):
                lines = jar.read(entry).decode("utf-8", errors="replace").splitlines()
                said = dict(line.split("=", 1) for line in lines if "=" in line)
                if {"groupId", "artifactId", "version"} <= said.keys():
                    yield said["groupId"], said["artifactId"], said["version"]
    except zipfile.BadZipFile:
        return


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Print what is in an image, as CycloneDX JSON.")
    parser.add_argument("name", metavar="NAME", help="of the image")
    parser.add_argument("--root", type=Path, default=Path("/"), help="where its files are (/)")
    return parser


if __name__ == "__main__":
    given = _parser().parse_args()
    json.dump(document(given.name, given.root), sys.stdout, indent=1, sort_keys=True)
    print()
