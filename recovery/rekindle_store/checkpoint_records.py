"""The record of a global checkpoint: the files that it needs, and where a start begins.

Goes by the names in the record, not by a program, so that who checks or copies a store needs no
pipeline. The driver's bookkeeping is `rekindle_spark.checkpoint.restore_points`. Format:
docs/formats.md.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["state", "input"]
Record = dict[str, Any]
# An earlier version has put generation, plan and attempt behind the epoch of some.
WAITING = re.compile(r"outputs/[^/]+~branch/([0-9]+)-([0-9]{9,})((?:-[0-9]+)*)\.parquet")


@dataclass(frozen=True, slots=True)
class Seal:
    """Which records of older drivers count, by the newest driver that has sealed the log: its
    generation, the epochs of checkpoints, and the numbers of records of branches; None where an
    earlier version has named no branches, so that all of them count."""

    generation: int
    checkpoints: frozenset[int] = frozenset()
    branches: frozenset[int] | None = frozenset()


def seal_of(record: Mapping[str, Any]) -> Seal | None:
    """What a commit record says of older drivers' records, where it sealed the log. Seals of the
    earliest versions say nothing, and are taken not to have missed any."""
    if "checkpoints" not in record:
        return None
    branches = record.get("branch_records")
    return Seal(
        record["generation"],
        frozenset(record["checkpoints"]),
        None if branches is None else frozenset(branches),
    )


def counting(records: Iterable[Record], seal: Seal | None) -> list[Record]:
    """The checkpoints that count, by the newest seal: its own driver's, and those of drivers before
    that it names."""
    if seal is None:
        return list(records)
    return [
        record
        for record in records
        if record["generation"] >= seal.generation or record["epoch"] in seal.checkpoints
    ]


def counting_branches(records: Mapping[int, Record], seal: Seal | None) -> dict[int, Record]:
    """The records of branches that count, by number, as `counting` has it for checkpoints."""
    if seal is None or seal.branches is None:
        return dict(records)
    return {
        number: record
        for number, record in sorted(records.items())
        if record["generation"] >= seal.generation or number in seal.branches
    }


def oldest(record: Mapping[str, Any]) -> int:
    """The earliest epoch that somebody starts from, as a checkpoint's record says."""
    return int(min([record["epoch"], *record.get("older", {}).values()]))


def first_input(record: Mapping[str, Any]) -> int:
    """The first epoch whose input has to be known: the next one is cut behind it, or it is run
    again. That of an older state is not, and after an upgrade it may lie in no record."""
    begin = oldest(record)
    return max(1, begin if begin == record["epoch"] else begin + 1)


def covered(record: Mapping[str, Any]) -> int:
    """The last commit record that a start from the checkpoint does not read: its fold has what
    these say. 0 where an older version has written it."""
    return int(record.get("fold", {}).get("commits", 0))


def files(record: Mapping[str, Any]) -> Iterator[str]:
    """The files that a checkpoint's record needs, by name in the store."""
    for name in record["bytes"]:
        yield file_name(record["epoch"], name, "state")
    yield from older_files(record)
    for name, chain in record.get("chains", {}).items():
        yield from (file_name(epoch, name, "state") for epoch in chain)
    for stored in record.get("inputs", ()):
        for name in stored["partitions"]:
            yield file_name(stored["checkpoint"], name, "input")


def older_files(record: Mapping[str, Any]) -> Iterator[str]:
    """Those of them that the states of what was behind are made of."""
    chains = record.get("chains", {})
    for name, epoch in record.get("older", {}).items():
        yield from (file_name(part, name, "state") for part in chains.get(name, (epoch,)))


def file_name(epoch: int, partition_name: str, kind: Kind) -> str:
    """In the store, of a partition's state or input in the checkpoint of an epoch."""
    return f"checkpoints/{epoch}/{partition_name.replace('/', '-')}.{kind}"


def waiting_rows(name: str) -> tuple[int, int] | None:
    """Partition and epoch of a file, by its path below the store, in which rows wait for a branch
    that is left out; None for another."""
    match = WAITING.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def attempted_rows(names: Iterable[str], index: int, epoch: int) -> str | None:
    """Of files by their paths below the store the one of the last attempt in which rows of a
    partition's epoch wait for a branch; None where there is none."""
    found = {}
    for name in names:
        match = WAITING.fullmatch(name)
        if match is not None and (int(match[1]), int(match[2])) == (index, epoch):
            found[tuple(map(int, match[3].split("-")[1:]))] = name
    return found[max(found)] if found else None


def is_read_no_more(name: str, epoch: int) -> bool:
    """Whether a file has rows that have waited for a branch, up to an epoch from which on, or from
    later ones, everything is started from that a start may begin with."""
    waiting = waiting_rows(name)
    return waiting is not None and waiting[1] <= epoch
