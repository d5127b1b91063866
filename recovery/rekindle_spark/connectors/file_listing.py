"""The list of a source's files, in the store: which file has which offsets, for good.

    listings/STEP/N.json   files in the order in which they are read; each record adds some

The offsets of a source partition are its files' rows one after the other. The driver adds records
before it says that there are these offsets. Each is created only where it is absent, so of two
drivers both go by what stands there. Nodes read records when they need one that they do not know.

It does not grow for ever: a record that is `whole` has all that the ones before it say and that is
still needed, and they are removed. Files that nobody reads again are then names alone, and not even
that once they have been gone for long. Format: docs/formats.md. Called by `file_source`.
"""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any

from rekindle.model import record_format
from rekindle.model.errors import DamagedError, InputError
from rekindle_spark.connectors import file_folders
from rekindle_spark.connectors.file_rows import FileContents
from rekindle_store.store_files import Files

KIND = "listing"
RECORD = re.compile(r"([0-9]+)\.json")
# A whole record is made behind so many others, and behind as many bytes as it has itself.
RECORDS_MIN = 50
# How often records may be replaced while they are read.
LOOKS_MAX = 20


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file that is read, or was: its path below the folder, size in bytes, version and time of
    change (microseconds), and its rows, which have the offsets from `begin` of a partition. It is
    opened as `marked`; `digest` is empty where a release without digests has listed it."""

    name: str
    bytes: int
    version: str
    modified: int
    partition: str
    begin: int
    rows: int
    marks: tuple[tuple[int, int], ...] = ()
    columns: tuple[str, ...] = ()
    error: str = ""
    digest: str = ""

    @property
    def marked(self) -> str:
        """The version of what was listed, with what else tells it from others."""
        return file_folders.marked(self.version, self.digest)

    @property
    def end(self) -> int:
        """The offset behind its last row."""
        return self.begin + self.rows

    @property
    def contents(self) -> FileContents:
        """What it has."""
        return FileContents(self.rows, self.marks, self.columns, self.error, self.digest)

    def record(self) -> dict[str, Any]:
        """Return the fields that a record has of it: those that are not empty, without the digest,
        which stands beside it."""
        found = {name: value for name, value in asdict(self).items() if name != "digest"}
        return {name: value for name, value in found.items() if value != () and value != ""}

    @staticmethod
    def from_record(record: Mapping[str, Any], digest: str) -> "ListedFile":
        """Read back what `record` wrote."""
        marks = tuple((row, at) for row, at in record.get("marks", ()))
        columns = tuple(record.get("columns", ()))
        found = {**record, "marks": marks, "columns": columns, "digest": digest}
        return ListedFile(**{"version": "", **found})


def of_files(files: Sequence[ListedFile]) -> dict[str, Any]:
    """Make the content of a record that lists files. Digests stand apart: earlier releases refuse a
    file with a field that they do not know, and ignore such a field of a record."""
    digests = [one.digest for one in files]
    return {
        "files": [one.record() for one in files],
        **({"digests": digests} if any(digests) else {}),
    }


@dataclass(slots=True)
class Listing:
    """All that records up to `number` say. `files` are in the order of their offsets, by source
    partition, `begins` where that has its first offset that is still listed; `seen` are the names
    that are not listed again, `absent` for how many seconds some of them had not been found when
    the newest whole record was made; `unreadable` are the versions of files that could not be read
    as a whole, by name, as they are opened: others are listed again. `place` is where the files
    are; empty where all records are older than this field."""

    number: int = 0
    place: str = ""
    files: dict[str, list[ListedFile]] = field(default_factory=dict)
    begins: dict[str, int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    absent: dict[str, float] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)

    def take_in(self, number: int, record: Mapping[str, Any]) -> None:
        """Go on to the next record, or to any that is whole."""
        if record.get("whole"):
            self.files, self.begins, self.seen = {}, dict(record["begins"]), set()
            for partition in self.begins:
                self.files[partition] = []
            self.absent = dict(record.get("absent", {}))
            self.seen.update(self.absent)
            known = record.get("unreadable_digests", {})
            self.place, self.unreadable = (
                "",
                {
                    name: file_folders.marked(version, known.get(name, ""))
                    for name, version in record.get("unreadable", {}).items()
                },
            )
        digests = record.get("digests", [""] * len(record["files"]))
        for one, digest in zip(record["files"], digests, strict=True):
            listed = ListedFile.from_record(one, digest)
            self.files.setdefault(listed.partition, []).append(listed)
            self.begins.setdefault(listed.partition, listed.begin)
            self.seen.add(listed.name)
            # A whole record has files by partition, so the mended version may come first. One that
            # an older release wrote has no `unreadable`: all its names are simply known.
            if not record.get("whole"):
                self._note_version(listed)
        self.seen.update(record.get("seen", ()))
        self.place = record.get("place", self.place)
        self.number = number

    def _note_version(self, listed: ListedFile) -> None:
        self.unreadable.pop(listed.name, None)
        if listed.error:
            self.unreadable[listed.name] = listed.marked

    def end(self, partition: str) -> int:
        """The offset behind the last row of a partition."""
        files = self.files.get(partition)
        return files[-1].end if files else self.begins.get(partition, 0)

    def is_mended(self, name: str, version: str) -> bool:
        """Whether this is another version of a file that could not be read, by its size and time of
        change alone."""
        return self.unreadable.get(name, version).partition(" ")[0] != version

    def covering(self, partition: str, begin: int, end: int) -> Sequence[ListedFile] | None:
        """The files that have rows of a range; None where not all of it is listed."""
        low, high = self.begins.get(partition, 0), self.end(partition)
        if begin < low or end > high:
            return None
        files = self.files.get(partition, ())
        return [one for one in files if one.begin < end and one.end > begin]

    def whole(
        self, needless: Mapping[str, int], absent: Mapping[str, float], forgotten: Set[str]
    ) -> dict[str, Any]:
        """A record of all that is needed: without files whose offsets end where nobody reads any
        more, and without the names of those that are `forgotten` as well. `absent` has the seconds
        for which names were not found."""
        kept = [
            one
            for partition, files in self.files.items()
            for one in files
            if one.end > needless.get(partition, 0)
        ]
        begins = {partition: self.end(partition) for partition in self.files}
        for one in reversed(kept):
            begins[one.partition] = one.begin
        names = {one.name for one in kept}
        unreadable = {
            name: marked.partition(" ")
            for name, marked in sorted(self.unreadable.items())
            if name in names or name not in forgotten
        }
        digests = {name: digest for name, (_, _, digest) in unreadable.items() if digest}
        return {
            "whole": True,
            **of_files(kept),
            "begins": begins,
            "seen": sorted(self.seen - names - absent.keys() - forgotten),
            "absent": {
                name: absent[name]
                for name in sorted((self.seen & absent.keys()) - names - forgotten)
            },
            "unreadable": {name: version for name, (version, _, _) in unreadable.items()},
            **({"unreadable_digests": digests} if digests else {}),
        }


@dataclass(slots=True)
class ListingLog:
    """The records of one source, with files at `place`, in a store. Its methods raise OSError while
    the store is away."""

    files: Files
    folder: str
    place: str
    listing: Listing = field(default_factory=Listing)
    # Since the newest whole record: records, their bytes, and the bytes of that one.
    records: int = 0
    record_bytes: int = 0
    whole_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def make_folder(self) -> None:
        """Make room for records: only the driver does."""
        top = ""
        for part in self.folder.split("/"):
            top = f"{top}/{part}" if top else part
            self.files.make_folder(top)

    def covering(self, partition: str, begin: int, end: int) -> Sequence[ListedFile]:
        """The files that have rows of a range. Raises DamagedError where it is not listed."""
        with self.lock:
            found = self.listing.covering(partition, begin, end)
            if found is None:
                self._catch_up()
                found = self.listing.covering(partition, begin, end)
        if found is None:
            raise DamagedError(
                where=f"{self.files.place}/{self.folder}",
                what=f"does not say which files have offsets {begin} to {end} of {partition}",
                remedy="restore it from a copy of the store",
            )
        return found

    def catch_up(self) -> Listing:
        """Read the records that have come."""
        with self.lock:
            self._catch_up()
            return self.listing

    def check_place(self) -> None:
        """Raise InputError where the records that were read are of files at another place: names
        that both places have would count as read."""
        listed = self.listing.place
        if listed and not file_folders.are_same(listed, self.place):
            raise InputError(
                where=f"step {self.folder.rpartition('/')[2]}: files at {self.place}",
                what=f"are others than those that this store has read, which are at {listed}",
                remedy="give the step another name, which reads all files there; or give it the "
                "path that it had. For the same files at a new place see docs/files.md",
            )

    def add_record(self, content: Mapping[str, Any]) -> bool:
        """Add a record; whether that was done: where another driver has added one, that is read
        instead."""
        with self.lock:
            number = self.listing.number + 1
            if content.get("whole") or not self.listing.place:
                content = {**content, "place": self.place}
            data = record_format.encode(KIND, content)
            try:
                self.files.create(self._name(number), data)
            except FileExistsError:
                self._catch_up()
                return False
            self._take_in(number, data)
            return True

    def shorten(
        self, needless: Mapping[str, int], absent: Mapping[str, float], forgotten: Set[str]
    ) -> None:
        """Replace records by a whole one, where that is worth it (`Listing.whole`)."""
        if self.records < RECORDS_MIN or self.record_bytes < self.whole_bytes:
            return
        if not self.add_record(self.listing.whole(needless, absent, forgotten)):
            return
        newest = self.listing.number
        old = [number for number in self._numbers() if number < newest]
        self.files.remove(self._name(number) for number in old)

    def _catch_up(self) -> None:
        for _ in range(LOOKS_MAX):
            try:
                for number, data in self._new():
                    self._take_in(number, data)
                return
            except FileNotFoundError:  # a whole record has just taken the place of some
                continue
        raise OSError(f"{self.folder} is replaced again and again")

    def _new(self) -> Sequence[tuple[int, bytes]]:
        """The records to take in: those behind the newest that is known, or from a whole one on.
        Raises DamagedError where some are missing."""
        found: list[tuple[int, bytes]] = []
        numbers = sorted((n for n in self._numbers() if n > self.listing.number), reverse=True)
        for number in numbers:
            found.append((number, self.files.read(self._name(number))))
            if self._decoded(*found[-1]).get("whole"):
                break
        before = self.listing.number
        for number, data in reversed(found):
            if number != before + 1 and not self._decoded(number, data).get("whole"):
                raise DamagedError(
                    where=f"{self.files.place}/{self._name(before + 1)}",
                    what="is not there, but what came later is",
                    remedy="restore it from a copy of the store",
                )
            before = number
        return found[::-1]

    def _take_in(self, number: int, data: bytes) -> None:
        record = self._decoded(number, data)
        self.listing.take_in(number, record)
        is_whole = bool(record.get("whole"))
        self.records = 0 if is_whole else self.records + 1
        self.record_bytes = 0 if is_whole else self.record_bytes + len(data)
        self.whole_bytes = len(data) if is_whole else self.whole_bytes

    def _decoded(self, number: int, data: bytes) -> dict[str, Any]:
        return record_format.decode(KIND, data, f"{self.files.place}/{self._name(number)}")

    def _numbers(self) -> Iterator[int]:
        for name in self.files.names(self.folder):
            found = RECORD.fullmatch(name)
            if found is not None:
                yield int(found[1])

    def _name(self, number: int) -> str:
        return f"{self.folder}/{number}.json"
