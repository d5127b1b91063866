"""The faults of faults.toml: read, moved to where an older tree has them, checked, chosen.

    [[fault]]
    name = "kebab-case"          what goes wrong, in a few words
    file = "recovery/..."        the file that is changed
    old = "..."                  text that occurs once in it
    new = "..."                  what takes its place
    harm = "..."                 what a user would suffer
    tests = ["tests/..."]        files or node ids of which at least one must fail

A second file says where an older tree has what has moved since: `[moved]`, new path = old path, or
"" for tests that it has not.
"""

import ast
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

FAULTS = Path(__file__).with_name("faults.toml")
FIELDS = ("name", "file", "old", "new", "harm", "tests")
UNIT = "tests/unit/"


class CatalogueError(Exception):
    """The faults cannot be used with this tree; the message names fault, file and cause."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One defect, and the tests that must notice it."""

    name: str
    file: str
    old: str
    new: str
    harm: str
    tests: tuple[str, ...]

    @property
    def is_unit_only(self) -> bool:
        """Whether its tests need no cluster, so that two such faults may be tried side by side."""
        return all(test.startswith(UNIT) for test in self.tests)

    @property
    def is_java(self) -> bool:
        """Whether the jar has to be built with it."""
        return self.file.endswith(".java")


def load(file: Path = FAULTS) -> tuple[Fault, ...]:
    """Reads the faults of a file; raises CatalogueError for what is no fault."""
    with file.open("rb") as stream:
        records = tomllib.load(stream)["fault"]
    faults = tuple(_fault(record) for record in records)
    names = [fault.name for fault in faults]
    for name in names:
        if names.count(name) > 1:
            raise CatalogueError(f"fault {name}: the name is there twice; give each its own")
    return faults


def moves(file: Path | None) -> dict[str, str]:
    """Reads where an older tree has what has moved: new path or node id -> old one, or ""."""
    if file is None:
        return {}
    with file.open("rb") as stream:
        found: dict[str, str] = tomllib.load(stream).get("moved", {})
    return found


def moved(fault: Fault, places: Mapping[str, str]) -> Fault:
    """Gives the fault as the older tree has it, which may have no test for it."""
    tests = tuple(filter(None, (_moved_test(test, places) for test in fault.tests)))
    return replace(fault, file=places.get(fault.file, fault.file), tests=tests)


def check(faults: Iterable[Fault], tree: Path) -> None:
    """Raises CatalogueError unless each `old` occurs exactly once, Python code is still code with
    `new` in its place, and all tests are there."""
    for fault in faults:
        path = tree / fault.file
        if not path.is_file():
            raise CatalogueError(f"fault {fault.name}: {fault.file} is not there")
        text = path.read_text()
        count = text.count(fault.old)
        if count != 1:
            raise CatalogueError(
                f"fault {fault.name}: {fault.file} has its old text {count} times, not once"
            )
        if path.suffix == ".py":
            try:
                ast.parse(text.replace(fault.old, fault.new))
            except SyntaxError as error:
                raise CatalogueError(f"fault {fault.name}: {fault.file}: {error}") from error
        for test in fault.tests:
            if not _is_there(test, tree):
                raise CatalogueError(f"fault {fault.name}: {test} is not there")


def chosen(
    faults: Sequence[Fault], *, only: Sequence[str], count: int | None, commit: str
) -> tuple[Fault, ...]:
    """Chooses faults by name, or `count` of them that lie evenly apart, others for each commit."""
    known = {fault.name: fault for fault in faults}
    for name in only:
        if name not in known:
            raise CatalogueError(f"there is no fault {name}; faults.toml has the names")
    left = [known[name] for name in dict.fromkeys(only)] if only else list(faults)
    if count is None or count >= len(left):
        return tuple(left)
    begin = int(commit[:12] or "0", 16) % len(left)
    places = {(begin + number * len(left) // count) % len(left) for number in range(count)}
    return tuple(left[place] for place in sorted(places))


def _is_there(test: str, tree: Path) -> bool:
    """Whether a tree has a file or folder of tests, and the function that a node id names."""
    file, _, name = test.partition("::")
    path = tree / file
    if not name:
        return path.exists()
    return path.is_file() and f"def {name.partition('[')[0]}(" in path.read_text()


def _fault(record: Mapping[str, object]) -> Fault:
    name = str(record.get("name", "without a name"))
    if set(record) != set(FIELDS):
        raise CatalogueError(f"fault {name}: its fields must be {', '.join(FIELDS)}")
    tests = record["tests"]
    if not isinstance(tests, list) or not tests:
        raise CatalogueError(f"fault {name}: tests must be a list that names at least one")
    file, old, new, harm = (str(record[field]) for field in ("file", "old", "new", "harm"))
    if not old or old == new:
        raise CatalogueError(f"fault {name}: old must be a text that new changes")
    return Fault(name, file, old, new, harm, tuple(map(str, tests)))


def _moved_test(test: str, places: Mapping[str, str]) -> str:
    """Moves a node id as a whole where it is named, otherwise by its file; "" where it is gone."""
    if test in places:
        return places[test]
    file, separator, rest = test.partition("::")
    place = places.get(file, file)
    return f"{place}{separator}{rest}" if place else ""
