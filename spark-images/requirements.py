"""Prints what Rekindle and some of its extras need, a line each, without Rekindle itself.

    requirements.py EXTRA...      reads pyproject.toml of the working directory

So the layer of packages depends on that file alone, and not on what is in the wheel.
"""

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

OWN = "rekindle["


def requirements(project: Mapping[str, Any], extras: Sequence[str]) -> list[str]:
    """Each requirement once, in order; extras that name extras of our own are followed."""
    return list(dict.fromkeys([*project["dependencies"], *_of_extras(project, extras)]))


def _of_extras(project: Mapping[str, Any], extras: Sequence[str]) -> Iterator[str]:
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            if line.startswith(OWN):
                yield from _of_extras(project, line.removeprefix(OWN).rstrip("]").split(","))
            else:
                yield line


if __name__ == "__main__":
    described = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    print("\n".join(requirements(described["project"], sys.argv[1:])))
