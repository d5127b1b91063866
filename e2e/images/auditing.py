"""Compares what images hold with a database of advisories that lies on this machine.

The database is one of OSV: a folder of records (JSON, one for each advisory), or the zip of them
that OSV publishes for an ecosystem. Nothing is asked of a network, so what is found depends on how
new the copy is; without one nothing can be found, and that is said and is no success.

What is compared: the locks (PyPI), or the components of a document that the build has made (PyPI
and Maven). Versions are matched by the records' own lists, and for PyPI by their ranges too.
Debian's packages are counted and not compared.
"""

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.version import InvalidVersion, Version

from images import locking
from rekindle.model.errors import InputError

PYPI, MAVEN = "PyPI", "Maven"
AGE_DAYS_MAX = 14
RECORD_BYTES_MAX = 16 << 20
_OTHERWISE_MADE = (AttributeError, KeyError, TypeError, ValueError)
REMEDY = "give a folder of OSV's records, or the zip that OSV publishes for PyPI or Maven"


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """A package of an ecosystem, its name in that one's normal form."""

    ecosystem: str
    name: str
    version: str


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """An advisory that holds for a package; `mended` are versions without it, if it names some."""

    package: Package
    advisory: str
    summary: str
    mended: tuple[str, ...] = ()

    def __str__(self) -> str:
        mended = f"; mended in {', '.join(self.mended)}" if self.mended else ""
        of = self.package
        return f"{of.name} {of.version} ({of.ecosystem}): {self.advisory} {self.summary}{mended}"


@dataclass(frozen=True, slots=True)
class Advisories:
    """A database: what is affected, by ecosystem and name, and when it was last changed."""

    affected: Mapping[tuple[str, str], Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]]
    records: int
    newest: datetime

    def check_age(self, now: datetime) -> None:
        """Refuse a copy in which nothing is newer than `AGE_DAYS_MAX` days. Raises `InputError`."""
        if now - self.newest > timedelta(days=AGE_DAYS_MAX):
            raise InputError(
                where="the database of advisories",
                what=f"has nothing newer than {self.newest:%Y-%m-%d}, over {AGE_DAYS_MAX} days ago",
                remedy="take a newer copy, or say --stale to compare with this one all the same",
            )


def read(path: Path) -> Advisories:
    """The database in a folder or a zip. Raises `InputError` where there is none."""
    affected: dict[tuple[str, str], list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    count, newest = 0, datetime.min.replace(tzinfo=UTC)
    for name, content in _files(path):
        try:
            record = json.loads(content)
            newest = max(newest, datetime.fromisoformat(record["modified"]))
            count += 1
            if "withdrawn" in record:
                continue
            for part in record.get("affected", ()):
                package = part["package"]
                key = (package["ecosystem"], _normal(package["ecosystem"], package["name"]))
                affected.setdefault(key, []).append((record, part))
        except _OTHERWISE_MADE as error:
            what = f"is no record of OSV: {type(error).__name__} {error}"
            raise InputError(where=f"{path}, {name}", what=what, remedy=REMEDY) from None
    if not count:
        raise InputError(where=str(path), what="has no records", remedy=REMEDY)
    return Advisories(affected, count, newest)


def of_locks(root: Path) -> list[Package]:
    """What the images' locks name. Raises `InputError` for a lock without digests."""
    files = [locking.folder(root) / f"{name}.txt" for name in (*locking.EXTRAS, locking.BUILD)]
    named = [locking.locked(file).items() for file in files]
    return sorted({Package(PYPI, name, version) for pairs in named for name, version in pairs})


def of_document(path: Path) -> tuple[list[Package], int]:
    """The packages of a CycloneDX document, and how many components cannot be compared."""
    found, others = set(), 0
    try:
        components = json.loads(path.read_text(encoding="utf-8"))["components"]
        for component in components:
            package = _of_purl(component["purl"])
            if package is None:
                others += 1
            else:
                found.add(package)
    except (OSError, *_OTHERWISE_MADE):
        raise InputError(
            where=str(path),
            what="is no CycloneDX document, or cannot be read",
            remedy="name one that `python -m images sbom` has printed",
        ) from None
    return sorted(found), others


def audit(packages: Iterable[Package], database: Advisories) -> list[Finding]:
    """What the database says of these packages, in order."""
    found = set()
    for package in packages:
        for record, part in database.affected.get((package.ecosystem, package.name), ()):
            if _holds(package, part):
                summary = " ".join(str(record.get("summary", "")).split())
                found.add(Finding(package, record["id"], summary, _mended(part)))
    return sorted(found)


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*.json")):
                yield file.name, file.read_bytes()
        else:
            with zipfile.ZipFile(path) as opened:
                for entry in opened.infolist():
                    if entry.filename.endswith(".json") and entry.file_size <= RECORD_BYTES_MAX:
                        yield entry.filename, opened.read(entry)
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(where=str(path), what=f"cannot be read: {error}", remedy=REMEDY) from None


def _of_purl(purl: str) -> Package | None:
    kind, _, rest = purl.removeprefix("pkg:").partition("/")
    name, _, version = rest.partition("?")[0].rpartition("@")
    name, version = unquote(name), unquote(version)
    if kind == "pypi":
        return Package(PYPI, _normal(PYPI, name), version)
    return Package(MAVEN, name.replace("/", ":"), version) if kind == "maven" else None


def _normal(ecosystem: str, name: str) -> str:
    return locking.normal(name) if ecosystem == PYPI else name


def _holds(package: Package, part: Mapping[str, Any]) -> bool:
    if package.version in part.get("versions", ()):
        return True
    if package.ecosystem != PYPI:
        return False
    ranges = [one for one in part.get("ranges", ()) if one.get("type") == "ECOSYSTEM"]
    return any(_within(package.version, one.get("events", ())) for one in ranges)


def _within(version: str, events: Iterable[Mapping[str, str]]) -> bool:
    """Whether a version is affected, by the events of a range: each holds from its version on."""
    asked, affected = Version(version), False
    for event in sorted(events, key=_order):
        ((kind, at),) = event.items()
        if kind == "introduced" and (at == "0" or asked >= _version(at)):
            affected = True
        elif (kind == "fixed" and asked >= _version(at)) or (
            kind == "last_affected" and asked > _version(at)
        ):
            affected = False
    return affected


def _order(event: Mapping[str, str]) -> Version:
    return _version(next(iter(event.values())))


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:  # of a scheme before the present one: older than all
        return Version("0.dev0")


def _mended(part: Mapping[str, Any]) -> tuple[str, ...]:
    events = [event for one in part.get("ranges", ()) for event in one.get("events", ())]
    return tuple(sorted({event["fixed"] for event in events if "fixed" in event}))
