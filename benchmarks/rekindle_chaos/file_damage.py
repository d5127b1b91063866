"""Damages files of a trial, so that a bit of what was written is read otherwise.

    flip            one byte of a file
    flip_exchange   one byte in each file of exchanged rows on a node, or in its index
    flip_state      one byte of a file that the newest checkpoint has brought, and no other needs
    cut_checkpoint  the end of the newest checkpoint's record

Files may go while they are looked at: those are left out.
"""

import random
from contextlib import suppress
from pathlib import Path

CUT_BYTES = 5


def flip(path: Path, rng: random.Random) -> bool:
    """Change one bit of a file; whether there was something to change."""
    with suppress(OSError), path.open("r+b") as file:
        size = file.seek(0, 2)
        if size:
            place = rng.randrange(size)
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))
            return True
    return False


def flip_exchange(disk: Path, rng: random.Random) -> int:
    """Change a bit in each file of blocks on a node's disk, or in its index; how many there
    were."""
    found = sorted(path for path in disk.rglob("shuffle_*.data") if path.is_file())
    return sum(flip(rng.choice((path, path.with_suffix(".index"))), rng) for path in found)


def flip_state(store: Path, rng: random.Random) -> bool:
    """Change a bit of a file that came with the newest checkpoint, where there is one before it,
    which is gone on from; whether there was such a file."""
    records = _records(store)
    if len(records) < 2:
        return False
    files = sorted(path for path in records[-1].with_suffix("").glob("*") if path.is_file())
    return bool(files) and flip(rng.choice(files), rng)


def cut_checkpoint(store: Path) -> None:
    """Cut off the end of the newest checkpoint's record, where there is one before it."""
    records = _records(store)
    if len(records) > 1:
        records[-1].write_bytes(records[-1].read_bytes()[:-CUT_BYTES])


def _records(store: Path) -> list[Path]:
    """The records of checkpoints, the oldest first."""
    found = (store / "checkpoints").glob("[0-9]*.json")
    return sorted(found, key=lambda path: int(path.stem))
