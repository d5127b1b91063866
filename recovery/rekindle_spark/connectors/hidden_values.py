"""Secrets of a source: named by the file or the variable that has them, and read where needed.

A pipeline is written into the store, and options into messages. So neither has a secret, only its
place; what is read is given to the client and kept nowhere else.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import RunError


@dataclass(frozen=True, slots=True)
class FromFile:
    """The content of a file, without line ends behind it, on every node and beside the driver."""

    path: str


@dataclass(frozen=True, slots=True)
class FromEnvironment:
    """The value of a variable of the environment, on every node and of the driver."""

    name: str


def revealed(where: str, value: object) -> object:
    """The secret where `value` names one, else the value. Raises RunError where it is not there."""
    if isinstance(value, FromEnvironment):
        found = os.environ.get(value.name)
        if found is None:
            raise RunError(
                where=where,
                what=f"the environment has no {value.name}",
                remedy="set it for driver and executors",
            )
        return found
    if isinstance(value, FromFile):
        try:
            return Path(value.path).read_text().rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise RunError(
                where=where,
                what=f"{value.path} cannot be read ({type(error).__name__})",
                remedy="put the secret there, on every node and beside the driver",
            ) from None
    return value
