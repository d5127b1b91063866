"""When nodes come after a failure, in seconds since it."""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rekindle.model.errors import InputError

SECONDS_MAX = 86_400.0
NUMBER = r"(\d{1,6}(?:\.\d{1,6})?)"


class NodeArrivals(Protocol):
    """A way in which nodes come."""

    def seconds(self, count: int, rng: random.Random) -> list[float]:
        """When so many nodes come, ascending; fewer than `count`: the others never do."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """One after the other at a fixed distance."""

    first: float
    every: float

    def seconds(self, count: int, rng: random.Random) -> list[float]:
        """The same whatever the chance."""
        del rng
        return [self.first + number * self.every for number in range(count)]


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each at a moment between two, whichever. From 120 to 360 it is what was measured of 180
    virtual machines on EC2 (Su and Zhou, figure 7: two to six minutes)."""

    low: float
    high: float

    def seconds(self, count: int, rng: random.Random) -> list[float]:
        """Independent of each other."""
        return sorted(rng.uniform(self.low, self.high) for _ in range(count))


@dataclass(frozen=True, slots=True)
class Trace:
    """As it was somewhere; nodes beyond its end never come."""

    moments: Sequence[float]

    def seconds(self, count: int, rng: random.Random) -> list[float]:
        """The first ones of the trace."""
        del rng
        return sorted(self.moments)[:count]


def parse(text: str, where: str) -> NodeArrivals:
    """`fixed:FIRST,EVERY`, `uniform:LOW..HIGH`, or `trace:FILE` with a JSON list of seconds.

    Raises InputError that names `where`.
    """
    kind, _, rest = text.partition(":")
    fixed = re.fullmatch(f"{NUMBER},{NUMBER}", rest)
    uniform = re.fullmatch(rf"{NUMBER}\.\.{NUMBER}", rest)
    if kind == "fixed" and fixed:
        return Fixed(float(fixed[1]), float(fixed[2]))
    if kind == "uniform" and uniform and float(uniform[1]) <= float(uniform[2]):
        return Uniform(float(uniform[1]), float(uniform[2]))
    if kind == "trace" and rest:
        return Trace(_moments(Path(rest), where))
    raise InputError(
        where=where,
        what=f"is {text!r:.60}",
        remedy="give fixed:FIRST,EVERY or uniform:LOW..HIGH in seconds, or trace:FILE",
    )


def _moments(path: Path, where: str) -> list[float]:
    remedy = "give a JSON file with a list of seconds from 0 to 86,400"
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            where=f"{where} {path}", what=f"cannot be read ({str(error)[:100]})", remedy=remedy
        ) from error
    if not isinstance(found, list):
        raise InputError(where=f"{where} {path}", what="is no list", remedy=remedy)
    for number, seconds in enumerate(found):
        sound = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not sound or not 0 <= seconds <= SECONDS_MAX:
            raise InputError(
                where=f"{where} {path}: [{number}]", what=f"is {seconds!r:.60}", remedy=remedy
            )
    return [float(seconds) for seconds in found]
