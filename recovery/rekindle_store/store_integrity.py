"""Checks that all files of a checkpoint store are there and unchanged.

    generations ─► commit log ─► output files ─► branches ─► checkpoints, states, input ─► offsets
      ─► listings

It changes nothing, and needs neither the pipeline nor its runtime. The commit log is walked here by
number: who reads it as a stream (`commit_log`) stops at the first gap, and here each is reported. A
driver may be running: what it removes meanwhile is damaged only if it is still needed then.

Called by `rekindle store check`, and by `store_copies` of what they have made. For users:
docs/operations.md.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Literal

from rekindle.model import record_format
from rekindle.model.errors import DamagedError, InputError, RunError
from rekindle_store import (
    checkpoint_records,
    checksummed_file,
    commit_log,
    commit_segments,
    committed_files,
    compacted_outputs,
    output_rows,
    store_errors,
)
from rekindle_store.checkpoint_records import Record, Seal
from rekindle_store.commit_segments import CommitSegment
from rekindle_store.compacted_outputs import DataFile, Part, Places
from rekindle_store.store_files import Files
from rekindle_store.store_readers import read_ahead, reading

# Damages that are told one by one; of more only the number is.
DAMAGES_MAX = 1_000
# Looks at checkpoints, each of which a driver may replace meanwhile.
LOOKS_MAX = 20
GONE = "is not there"
PROGRAM = re.compile(r"program-([0-9]+)\.pickle")
LISTING = re.compile(r"([^/]+)/([0-9]+)\.json")
COPY = "restore it from a copy of the store"

Say = Callable[[str], None]
OfOutput = Literal["rows", "sizes", "nothing"]
# Of an output file: its path below the store, its rows, and the commit record that names it.
Output = tuple[str, int, int]
Look = Callable[[], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is wrong in a store: its `place` below the store, what is wrong there, what
    that means for who uses the store, and the remedy."""

    place: str
    what: str
    meaning: str
    remedy: str = COPY


@dataclass(slots=True)
class Findings:
    """What was looked at, files and bytes of each kind, and what is wrong. `commits` is the number
    of the newest commit record, `checkpoint` the epoch of the newest checkpoint that counts."""

    place: str
    identity: str = ""
    generation: int = 0
    commits: int = 0
    checkpoint: int = 0
    files: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    damages: list[Damage] = field(default_factory=list)
    more_damages: int = 0

    def count(self, kind: str, size_bytes: int) -> None:
        """Add a file that was looked at."""
        self.files[kind] += 1
        self.bytes[kind] += size_bytes

    def add(self, damage: Damage) -> None:
        """Add what is wrong."""
        if len(self.damages) < DAMAGES_MAX:
            self.damages.append(damage)
        else:
            self.more_damages += 1

    def merge(self, other: "Findings") -> None:
        """Add what another look has found."""
        self.checkpoint = max(self.checkpoint, other.checkpoint)
        self.files.update(other.files)
        self.bytes.update(other.bytes)
        for damage in other.damages:
            self.add(damage)
        self.more_damages += other.more_damages


def check(
    files: Files, *, of_output: OfOutput = "rows", begun: bool = False, say: Say = lambda _: None
) -> Findings:
    """Look at all that counts in a store, and `of_output` files at their rows, at their sizes alone
    or at nothing. A copy that was only `begun` is no finding then. `say` is told how far it is.

    Raises InputError where there is no store, where it cannot be read, and where another version
    has written it; RunError when its server does not answer.
    """
    with reading(files.place):
        findings = Findings(files.place)
        walk = _Walk(files, findings, say, of_output)
        walk.generations()
        findings.identity = commit_log.identity(files)
        if not begun and commit_log.is_being_copied(files):
            findings.add(Damage(commit_log.COPYING, *UNFINISHED))
        walk.commits()
        walk.branches()
        walk.checkpoints()
        walk.listings()
        return findings


def branch_files(
    files: Files, records: Iterable[Record], after: int
) -> dict[tuple[str, int], dict[int, str]]:
    """The files behind an epoch in which rows wait for branches that are left out: by the step and
    the number of the partition the name of each epoch's."""
    found: dict[tuple[str, int], dict[int, str]] = {}
    for step in sorted({record["step"] for record in records}):
        folder = f"outputs/{step}~branch"
        for name in files.names(folder):
            waiting = checkpoint_records.waiting_rows(f"{folder}/{name}")
            if waiting is not None and waiting[1] > after:
                of_part = found.setdefault((step, waiting[0]), {})
                of_part[waiting[1]] = f"{folder}/{name}"
    return found


BRANCH_GONE = "a start does not know from which epoch on a step is left out, and is refused"
COMMIT_GONE = "starts are refused, and readers end there: no output behind it is read"
GENERATION_GONE = "an older driver may not notice that it was replaced, and the pipeline's outputs"
GENERATION_GONE += " may not be known to readers"
INDEX_GONE = "readers of output end with an error at the commits that it is for"
LISTING_GONE = "nodes do not know which files have rows that are still to be read, and the source's"
LISTING_GONE += " queries stop"
OFFSETS_GONE = "the input of the epoch is not known any more, and starts are refused"
OUTPUT_GONE = "readers of the query end with an error there"
ROWS_GONE = "the branch that is left out cannot catch up from there on, once it is mended"
STATE_GONE = "a start from this checkpoint is refused, and sets it aside for the one before"
UNFINISHED = (
    "is there: this is a copy that was not made to its end",
    "no driver starts on it",
    "copy the store again: it goes on where it was",
)
MEANINGS = {
    "generations": GENERATION_GONE,
    "offsets": OFFSETS_GONE,
}


@dataclass(slots=True)
class _Walk:
    """One look at a store. `named` is the newest epoch with output of each query partition,
    `finished` the newest epoch that is finished for any partition, `last` the newest commit,
    `written_by` the newest driver that has written any, and a number of its commits, `seal` the
    newest driver's, `left_out` what runs without a step, `looked_at` the files that serve many
    commits, and were looked at."""

    files: Files
    findings: Findings
    say: Say
    of_output: OfOutput
    named: dict[str, int] = field(default_factory=dict)
    finished: int = 0
    last: int = 0
    written_by: tuple[int, int] = (0, 0)
    seal: Seal | None = None
    left_out: list[Record] = field(default_factory=list)
    places: Places = field(init=False)
    looked_at: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.places = Places(self.files)

    def generations(self) -> None:
        """The records of drivers' starts, and the programs of the last ones."""
        found = self.numbered("generations", "generation")
        if not found:
            raise InputError(
                where=f"checkpoint store {self.files.place}",
                what="is not there, or no pipeline has run on it",
                remedy=store_errors.FOLDER_REMEDY,
            )
        self.findings.generation = found[-1]
        for name in self.files.names("generations"):
            if PROGRAM.fullmatch(name):
                self._program(f"generations/{name}")

    def _program(self, name: str) -> None:
        try:
            data = self.files.read(name)
            sum_ = self.files.read(f"{name}.sha256")
        except FileNotFoundError:  # of an earlier version, or a newer driver has removed it
            return
        self.findings.count("programs", len(data))
        if sha256(data).hexdigest().encode() != sum_.strip():
            what = "does not match its checksum"
            meaning = "hosts that start now refuse all work of this driver"
            remedy = "start the driver again: each start writes its program anew"
            self.findings.add(Damage(name, what, meaning, remedy))

    def branches(self) -> None:
        """The records of what is left out. Those that count have no gaps; a record of an older
        driver that came too late is in nobody's way."""
        numbers = commit_log.numbers(self.files, "branches")
        found: dict[int, Record] = {}
        for number in numbers:
            name = f"branches/{number}.json"
            record = self._counted("branches", "branch", name, self._read(name), BRANCH_GONE)
            if record:
                found[number] = record
        counting = checkpoint_records.counting_branches(found, self.seal)
        self.left_out += counting.values()
        for gap in _stretches(set(range(1, max(counting, default=1))) - set(numbers)):
            self.findings.add(_gap("branches", gap, BRANCH_GONE))

    def listings(self) -> None:
        """The lists of files that sources read: without gaps behind the newest whole record."""
        numbers: dict[str, set[int]] = {}
        begins: dict[str, int] = {}
        found = [LISTING.fullmatch(name) for name in self.files.names("listings")]
        known = sorted((one[1], int(one[2])) for one in found if one is not None)
        names = [f"listings/{step}/{number}.json" for step, number in known]
        for (step, number), data in zip(known, read_ahead(names, self._read), strict=True):
            name = f"listings/{step}/{number}.json"
            numbers.setdefault(step, set()).add(number)
            record = self._counted("listings", "listing", name, data, LISTING_GONE)
            if record and record.get("whole"):
                begins[step] = number
        for step, there in numbers.items():
            for gap in _stretches(set(range(begins.get(step, 1), max(there))) - there):
                self.findings.add(_gap(f"listings/{step}", gap, LISTING_GONE))

    def numbered(self, folder: str, kind: str, first: int = 1, last: int = 0) -> list[int]:
        """Read the records of a folder from number `first` on, which have no gaps up to the newest
        and to `last`; their numbers."""
        numbers = [number for number in commit_log.numbers(self.files, folder) if number >= first]
        names = [f"{folder}/{number}.json" for number in numbers]
        for name, data in zip(names, read_ahead(names, self._read), strict=True):
            self._counted(folder, kind, name, data, MEANINGS[folder])
        for gap in _stretches(set(range(first, max([last, *numbers]) + 1)).difference(numbers)):
            self.findings.add(_gap(folder, gap, MEANINGS[folder]))
        return numbers

    def _read(self, name: str) -> bytes | None:
        try:
            return self.files.read(name)
        except FileNotFoundError:
            return None

    def _counted(
        self, folder: str, kind: str, place: str, data: bytes | None, meaning: str
    ) -> Record | None:
        """A record that is counted among those of its folder; None where a driver has removed it
        meanwhile, and as `_decoded`."""
        if data is None:
            return None
        self.findings.count(folder, len(data))
        return self._decoded(kind, place, data, meaning)

    def _decoded(self, kind: str, place: str, data: bytes, meaning: str) -> Record | None:
        """A record; None, and a finding, where it is damaged."""
        try:
            return record_format.decode(kind, data, place)
        except DamagedError as error:
            self.findings.add(Damage(place, error.what, meaning))
            return None

    def commits(self) -> None:
        """Walk the numbers of commit records, each in its segment or in a file of its own."""
        # In this order: a record loses its own file only once its segment is there.
        own = set(commit_log.numbers(self.files, "commits"))
        made = self._segments()
        self._indices()
        last = max([*own, *(first + commit_segments.LENGTH - 1 for first in made)], default=0)
        self.findings.commits = self.last = last
        # the log may have grown since its own files were listed
        if last not in own and commit_log.newest(self.files) < last:
            what = "is not there, though it is the newest record of the log"
            meaning = "a start takes the log for shorter than it is, and uses old numbers again"
            remedy = "make it again from its segment (docs/operations.md)"
            self.findings.add(Damage(f"commits/{last}.json", what, meaning, remedy))
        missing: set[int] = set()
        for first in range(1, last + 1, commit_segments.LENGTH):
            self.say(f"commit {first:,} of {last:,}, {self.findings.files['outputs']:,} outputs")
            numbers = range(first, min(first + commit_segments.LENGTH, last + 1))
            found = self._block(numbers, own, is_made=first in made)
            missing |= set(numbers).difference(found)
            outputs: list[Output] = []
            for number, record in found.items():
                if record is not None:
                    outputs += self._taken_in(number, record)
            self._check_outputs(outputs)
        for gap in _stretches(missing):
            self.findings.add(_gap("commits", gap, COMMIT_GONE))
        self._check_writer()

    def _check_writer(self) -> None:
        """The newest start has no later one that shows its gap: what its driver wrote does. It may
        have come since starts were listed."""
        writer, number = self.written_by
        if writer > max(commit_log.generations(self.files), default=0):
            what = f"is not there, but that driver has written commit record {number}"
            meaning = "the next driver takes its number, and may not fence it"
            self.findings.add(Damage(f"generations/{writer}.json", what, meaning))

    def _segments(self) -> set[int]:
        """The first numbers of the segments that are there."""
        made, others = commit_segments.made(self.files)
        for first, last in others:
            place = f"{commit_segments.FOLDER}/{first}-{last}.jsonl.gz"
            what = f"overlaps {commit_segments.name_of(max(first, 1))}"
            meaning = "nobody reads it: names of segments follow from the numbers of their records"
            remedy = "remove it, if nothing else of the log is damaged; else restore the segments"
            self.findings.add(Damage(place, what, meaning, f"{remedy} from a copy of the store"))
        return made

    def _indices(self) -> None:
        """The indices of output that was put together."""
        found, others = compacted_outputs.made(self.files)
        meaning = "nobody reads it: names of indices follow from the numbers of their commits"
        for name in others:
            remedy = "remove it, if nothing else is damaged"
            self.findings.add(
                Damage(name, "is for other commits than an index is", meaning, remedy)
            )
        for level, firsts in enumerate(found):
            for first in sorted(firsts):
                self._index(first, level)

    def _index(self, first: int, level: int) -> None:
        name = compacted_outputs.name_of(first, level)
        try:
            self.findings.count("indices", self.files.size(name))
            compacted_outputs.read(self.files, first, level)
        except FileNotFoundError:  # one of a higher level has taken its place meanwhile
            return
        except DamagedError as error:
            self._add_index(error)

    def _add_index(self, error: DamagedError) -> None:
        """An index that is damaged, or does not fit its commits: told once. Damage of the commits
        themselves is told where they are looked at."""
        place = error.where.removeprefix(f"{self.files.place}/")
        if place not in self.looked_at and compacted_outputs.is_index(place):
            self.looked_at.add(place)
            self.findings.add(Damage(place, error.what, INDEX_GONE))

    def _block(self, numbers: range, own: set[int], *, is_made: bool) -> dict[int, Record | None]:
        """The records of the numbers of one segment that are there, None for damaged ones."""
        wanted = [number for number in numbers if number in own]
        names = [f"commits/{number}.json" for number in wanted]
        read = dict(zip(wanted, read_ahead(names, self._read), strict=True))
        is_made = is_made or None in read.values()  # it was made meanwhile
        segment = self._segment(numbers[0]) if is_made else None
        found: dict[int, Record | None] = dict.fromkeys(numbers if segment == [] else ())
        for number, data in read.items():
            if data is not None:
                self.findings.count("commits", len(data))
                name = f"commits/{number}.json"
                found[number] = self._decoded("commit", name, data, COMMIT_GONE)
        for number, record in segment or ():
            self._compare(number, found.get(number), record)
            found[number] = record
        return dict(sorted(found.items()))

    def _segment(self, number: int) -> list[tuple[int, Record | None]] | None:
        """The records of a segment, None for damaged ones; no record, and a finding, where it is
        damaged as a whole, and None without one."""
        name = commit_segments.name_of(number)
        try:
            self.findings.count("segments", self.files.size(name))
            segment = commit_segments.read(self.files, number)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            self.findings.add(Damage(name, error.what, COMMIT_GONE))
            return []
        return None if segment is None else list(self._records(name, segment))

    def _records(self, name: str, segment: CommitSegment) -> Iterator[tuple[int, Record | None]]:
        for number, found in segment.checked():
            if isinstance(found, DamagedError):
                place = f"{name}: record {number}"
                self.findings.add(Damage(place, found.what, COMMIT_GONE))
                yield number, None
            else:
                yield number, found

    def _compare(self, number: int, own: Record | None, record: Record | None) -> None:
        """What a record's own file says where its segment is there, which counts, and may keep less
        of it. A driver that was replaced may have made the file later: that is harmless."""
        if own is None or record is None or record in (own, commit_segments.kept(own)):
            return
        if own["generation"] >= record["generation"]:
            what = f"is another record than the one in {commit_segments.name_of(number)}"
            meaning = "two records have one number: readers and drivers may take either"
            self.findings.add(Damage(f"commits/{number}.json", what, meaning))

    def _taken_in(self, number: int, record: Record) -> Iterator[Output]:
        """The output files that a record names, with their rows and the record's number."""
        self.seal = checkpoint_records.seal_of(record) or self.seal
        self.written_by = max(self.written_by, (record["generation"], number))
        newest = max((last for _, last, _ in record["finished"].values()), default=0)
        self.finished = max(self.finished, newest)
        for part, epoch, rows, file, _ in sorted(record["outputs"], key=lambda one: one[:2]):
            if self.named.get(part, 0) >= epoch:
                what = f"names epoch {epoch} of {part}, which an earlier record has named"
                meaning = "readers get rows twice"
                self.findings.add(Damage(f"commits/{number}.json", what, meaning))
            self.named[part] = max(epoch, self.named.get(part, 0))
            match = committed_files.PARTITION.fullmatch(part)
            if match is None or committed_files.FILE.fullmatch(file) is None:
                what = f"names {part!r:.120} and {file!r:.120}, which no driver does"
                self.findings.add(Damage(f"commits/{number}.json", what, COMMIT_GONE))
                continue
            yield f"outputs/{match[1]}/{file}", rows, number

    def _check_outputs(self, outputs: list[Output]) -> None:
        """Look at output files, or at the data files that their rows are in, each of these once."""
        if self.of_output == "nothing":
            return
        before: list[Part | None] = []
        while True:
            located = self._located(outputs)
            if located is None:
                return
            looks = self._looks(outputs, located)
            found = list(read_ahead(looks.values(), lambda look: look()))
            is_gone = any(what.startswith(GONE) for _, what in found)
            if not is_gone or located == before:
                break
            before = located
            self.places.look_again()  # it was put together meanwhile
        for name, (size, what) in zip(looks, found, strict=True):
            self.looked_at.add(name)
            self.findings.count("outputs", size)
            if what:
                self.findings.add(Damage(name, what, OUTPUT_GONE))

    def _located(self, outputs: list[Output]) -> list[Part | None] | None:
        """Where the rows of output files are; None, and a finding, where an index is damaged."""
        try:
            return [self.places.part(commit, name) for name, _, commit in outputs]
        except DamagedError as error:
            self._add_index(error)
            return None

    def _looks(self, outputs: list[Output], located: list[Part | None]) -> dict[str, Look]:
        """What is to be looked at, by name, and how."""
        looks: dict[str, Look] = {}
        for (name, rows, commit), part in zip(outputs, located, strict=True):
            if part is None:
                by = f"commit record {commit}"
                looks[name] = partial(self._output, name, rows, by)
            elif part.file.name not in self.looked_at:
                looks[part.file.name] = partial(self._data_file, part.file)
        return looks

    def _output(self, name: str, rows: int, by: str) -> tuple[int, str]:
        """The bytes of a file with rows of output, and what is wrong with it. Its pages are read,
        with their checksums, unless sizes will do; `by` is what names it."""
        size, found = self._parquet(name) if self.of_output == "rows" else self._size(name, rows)
        if found == GONE:
            return size, f"{GONE}, but {by} names it"
        if isinstance(found, str):
            return size, found
        return size, "" if found == rows else f"has {found} rows, where {by} says {rows}"

    def _data_file(self, file: DataFile) -> tuple[int, str]:
        size, what = self._output(file.name, file.rows, "its index")
        if not what and size != file.bytes:
            what = f"has {size} bytes, where its index says {file.bytes}"
        return size, what

    def _size(self, name: str, rows: int) -> tuple[int, int | str]:
        """The bytes of a file, and the rows that it is to have."""
        try:
            return self.files.size(name), rows
        except FileNotFoundError:
            return 0, GONE

    def _parquet(self, name: str) -> tuple[int, int | str]:
        """The bytes of a Parquet file, and its rows: what is wrong instead, where something is."""
        try:
            data = self.files.read(name)
        except FileNotFoundError:
            return 0, GONE
        try:
            return len(data), output_rows.opened(name, data).table().num_rows
        except DamagedError as error:
            return len(data), error.what

    def checkpoints(self) -> None:
        """The checkpoints that count, their files, and the input of epochs since the newest. A
        driver may complete another meanwhile, and remove what it needs no more: then all is looked
        at again."""
        whole = self.findings
        for _ in range(LOOKS_MAX):
            self.findings = Findings(self.files.place)
            before = commit_log.numbers(self.files, "checkpoints")
            self._look_at_checkpoints()
            is_same = before == commit_log.numbers(self.files, "checkpoints")
            if is_same or not self.findings.damages:
                break
        else:  # what it removes all the time is no damage
            self.findings.damages.clear()
        whole.merge(self.findings)
        self.findings = whole

    def _look_at_checkpoints(self) -> None:
        found = [*self._checkpoint_records()]
        counting = checkpoint_records.counting(found, self.seal)
        self._check_files(counting)
        begin = 1
        if counting:
            newest = counting[-1]
            self._check_newest(newest)
            begin = checkpoint_records.first_input(newest)
            if "cut" in newest:  # which is the input of its epoch
                begin = max(begin, newest["epoch"] + 1)
        self.numbered("offsets", "offsets", begin, self.finished)
        self._check_branches(0 if not counting else checkpoint_records.oldest(counting[-1]))

    def _check_branches(self, after: int) -> None:
        """The rows that wait for branches: files of epochs that follow each other, also of those
        without rows."""
        for (step, part), by_epoch in branch_files(self.files, self.left_out, after).items():
            names = [by_epoch[epoch] for epoch in sorted(by_epoch)]
            for name, (size, what) in zip(names, read_ahead(names, self._waiting), strict=True):
                self.findings.count("waiting", size)
                if what:
                    self.findings.add(Damage(name, what, ROWS_GONE))
            for gap in _stretches(set(range(min(by_epoch), max(by_epoch))) - by_epoch.keys()):
                name = f"outputs/{step}~branch/{part}-{gap[0]:09d}.parquet"
                what = f"is not there, nor are files up to epoch {gap[1]}"
                self.findings.add(Damage(name, what, ROWS_GONE))

    def _checkpoint_records(self) -> Iterator[Record]:
        for number in commit_log.numbers(self.files, "checkpoints"):
            name = f"checkpoints/{number}.json"
            data = self._read(name)
            record = self._counted("checkpoints", "checkpoint", name, data, STATE_GONE)
            if record:
                yield record

    def _check_newest(self, record: Record) -> None:
        self.findings.checkpoint = record["epoch"]
        covered = checkpoint_records.covered(record)
        newest = max(self.last, commit_log.newest(self.files))  # the log may have grown
        if covered > newest:
            what = f"covers commit {covered}, and the newest one is {newest}"
            name = f"checkpoints/{record['epoch']}.json"
            self.findings.add(Damage(name, what, COMMIT_GONE))

    def _check_files(self, counting: Iterable[Record]) -> None:
        """The files that checkpoints need."""
        needed = {name for record in counting for name in checkpoint_records.files(record)}
        names = sorted(needed)
        self.say(f"{len(names):,} files of checkpoints")
        for name, (size, what) in zip(names, read_ahead(names, self._sealed), strict=True):
            self.findings.count("inputs" if name.endswith(".input") else "states", size)
            if what:
                self.findings.add(Damage(name, what, STATE_GONE))

    def _waiting(self, name: str) -> tuple[int, str]:
        """The bytes of a file of rows that wait for a branch, and what is wrong with it."""
        return self._checked(name, checksummed_file.check_rows)

    def _sealed(self, name: str) -> tuple[int, str]:
        """The bytes of a file of a checkpoint, and what is wrong with it."""
        return self._checked(name, checksummed_file.check)

    def _checked(self, name: str, check: Callable[[str, bytes], object]) -> tuple[int, str]:
        try:
            data = self.files.read(name)
        except FileNotFoundError:
            return 0, GONE
        try:
            check(name, data)
        except RunError as error:  # also one of another version
            return len(data), error.what
        return len(data), ""


def _gap(folder: str, numbers: tuple[int, int], meaning: str) -> Damage:
    first, last = numbers
    are = "is" if first == last else f"to {last}.json are"
    later = "" if folder == "offsets" else ", but what came later is"
    return Damage(f"{folder}/{first}.json", f"{are} not there{later}", meaning)


def _stretches(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last of each stretch of numbers that follow each other."""
    begin = end = 0
    for number in sorted(numbers):
        if number != end + 1 or not begin:
            if begin:
                yield begin, end
            begin = number
        end = number
    if begin:
        yield begin, end
