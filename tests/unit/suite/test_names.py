"""Names of modules and classes: each has one meaning in the project, and is a word of the field."""

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

from syntax_trees import parsed

ROOT = Path(__file__).parents[3]
SOURCES = sorted(
    file
    for folder in ("recovery", "operator", "benchmarks", "e2e")
    for file in (ROOT / folder).rglob("*.py")
)
# Every package may have these.
OF_EVERY_PACKAGE = ("__init__", "__main__")
# Python reads a module of this name at its start; each lies in a folder of its own.
READ_BY_PYTHON = ("sitecustomize",)
# Words that a reader has to translate, with the word to use instead.
BANNED = {
    "common": "what the functions in it are about",
    "consequences": "effects",
    "contender": "system",
    "desk": "session, controller",
    "errand": "work item, work queue",
    "footing": "protection reason",
    "grounds": "reason",
    "guidance": "client",
    "hearing": "report",
    "helpers": "what the functions in it are about",
    "judging": "detection, check",
    "manager": "what it manages, with a verb: writer, runner, cache",
    "misc": "what the functions in it are about",
    "narrowing": "effective policy",
    "overseer": "adapter, reconciler",
    "patience": "retry",
    "poison": "failing row",
    "recollection": "state",
    "renewals": "lease",
    "sounding": "probe",
    "standing": "status, state",
    "storytelling": "status writer",
    "surroundings": "view, environment",
    "telling": "event, report",
    "tending": "sync, writer",
    "turns": "queue, scheduler",
    "utils": "what the functions in it are about",
}
# Parts of names in which a banned word is the field's own after all.
ALLOWED = {
    "Narrowing": "the field `narrowed` of a policy's status in the API",
}
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def named(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def modules() -> dict[str, list[str]]:
    """Files by the name of their module."""
    found = defaultdict(list)
    for file in SOURCES:
        if file.stem not in (*OF_EVERY_PACKAGE, *READ_BY_PYTHON):
            found[file.stem].append(named(file))
    return found


def classes() -> dict[str, list[str]]:
    """Files by the public classes at their top level."""
    found = defaultdict(list)
    for file in SOURCES:
        for node in parsed(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(named(file))
    return found


def words(name: str) -> set[str]:
    """The words of a name, as `work_queue` and as `WorkQueue`, in lower case."""
    found = {word.lower() for word in WORD.findall(name)}
    return found | {word.removesuffix("s") for word in found}


def test_no_two_modules_have_the_same_name() -> None:
    for name, files in modules().items():
        assert len(files) == 1, (
            f"{' and '.join(files)} have the same name; name each by its own subject, as "
            f"sidecar_{name}"
        )


def test_no_two_public_classes_have_the_same_name() -> None:
    for name, files in classes().items():
        assert len(files) == 1, (
            f"{' and '.join(files)} have a class {name} each; name each by what it is of, as "
            f"Sidecar{name}, or begin it with _ where no other module uses it"
        )


def test_modules_and_classes_are_named_by_words_of_the_field() -> None:
    for name, files in [*modules().items(), *classes().items()]:
        for word in sorted(words(name) & BANNED.keys()):
            assert name in ALLOWED, (
                f"{files[0]}: {name} holds the word {word!r}; better: {BANNED[word]}"
            )


def test_allowed_names_are_there_and_would_be_banned() -> None:
    there = modules().keys() | classes().keys()
    for name in ALLOWED:
        assert name in there, f"{name} is not there any more; take it out of ALLOWED"
        assert words(name) & BANNED.keys(), f"{name} holds no banned word"


def test_names_are_taken_apart_into_words() -> None:
    assert words("work_queue") == {"work", "queue"}
    assert words("HTTPErrors") >= {"http", "errors", "error"}
    assert words("MachinesOfTurns") >= {"turns", "machine"}


def test_every_package_below_the_runtime_and_the_operator_has_an_import_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    held = {module for contract in contracts for module in contract.get("source_modules", ())}
    for folder in ("recovery/rekindle_spark", "operator/rekindle_operator"):
        for init in sorted((ROOT / folder).glob("*/__init__.py")):
            package = f"{init.parent.parent.name}.{init.parent.name}"
            holds = any(module == package or module.startswith(f"{package}.") for module in held)
            assert holds, (
                f"{package} is the source of no import contract in pyproject.toml; add one that "
                "says what it must not import"
            )
