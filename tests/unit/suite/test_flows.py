"""ARCHITECTURE and its flows: files that they name exist, and a flow does not grow.

A flow's numbered list names the files to open, in order; its last section those that are crossed
as well. ARCHITECTURE has both counts.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
FLOWS = sorted((ROOT / "docs" / "flows").glob("*.md"))
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
LINES_MAX, LINE_CHARACTERS_MAX = 150, 120
# Files to open, and all that are crossed. Lower a count when a flow has become shorter.
COUNTS = {"checkpoint": (10, 29), "kubectl-status": (6, 8), "node-loss": (21, 59), "row": (23, 58)}
LINK = re.compile(r"\]\(\.\./\.\./([\w/.-]+)\)")
STEP = re.compile(r"^\d+\. \[[^\]]+\]\(\.\./\.\./([\w/.-]+)\): \S", re.MULTILINE)
# Decisions before this number were linked from the pages of their subjects.
LINKED_FROM = "0010"
CODE = [
    path
    for root in ("recovery", "operator", "benchmarks", "e2e")
    for suffix in ("*.py", "*.java")
    for path in sorted((ROOT / root).rglob(suffix))
]


def steps(page: Path) -> list[str]:
    """The files of the numbered list."""
    return STEP.findall(page.read_text(encoding="utf-8"))


def crossed(page: Path) -> list[str]:
    return LINK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", FLOWS, ids=lambda page: page.stem)
def test_the_files_of_a_flow_exist_and_are_named_once(page: Path) -> None:
    named = crossed(page)
    assert [name for name in named if not (ROOT / name).is_file()] == []
    assert sorted(named) == sorted(set(named))


@pytest.mark.parametrize("page", FLOWS, ids=lambda page: page.stem)
def test_the_steps_of_a_flow_are_numbered_in_order(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(steps(page)) + 1))


def test_no_flow_has_more_files_than_it_had() -> None:
    found = {page.stem: (len(steps(page)), len(crossed(page))) for page in FLOWS}
    assert found == COUNTS, (
        "a flow has another number of files: where it has become longer, shorten it; where it has "
        "become shorter, lower the count here and in ARCHITECTURE.md"
    )


def test_architecture_has_each_flow_with_its_counts() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    rows = re.findall(r"\(docs/flows/([\w-]+)\.md\) \| (\d+) \| \d+ \| (\d+) \|", text)
    assert {name: (int(first), int(all_)) for name, first, all_ in rows} == COUNTS


def test_architecture_stays_a_page() -> None:
    lines = ARCHITECTURE.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LINES_MAX
    assert [line for line in lines if len(line) > LINE_CHARACTERS_MAX] == []


def test_folders_and_files_that_architecture_names_exist() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    below = ("", "recovery/rekindle_spark/", "operator/rekindle_operator/")
    for row in re.findall(r"^\| (`[^|]+/`) \|", text, re.MULTILINE):
        folders = re.findall(r"`([\w/-]+)/`", row)
        parents = ["", folders[0].rpartition("/")[0] + "/"]
        for folder in folders:
            assert any((ROOT / parent / folder).is_dir() for parent in parents), folder
    for file in re.findall(r"`([\w/]+\.py)`", text):
        assert any((ROOT / root / file).is_file() for root in below), file


def test_a_decision_and_the_code_that_it_explains_name_each_other() -> None:
    names = {path.name for path in DECISIONS}
    linked = {
        name
        for path in CODE
        for name in re.findall(r"docs/decisions/([\w-]+\.md)", path.read_text(encoding="utf-8"))
    }
    assert linked <= names, linked - names
    late = {name for name in names if name >= LINKED_FROM}
    assert late <= linked, f"no code names {sorted(late - linked)}"


def test_files_that_decisions_name_exist() -> None:
    for page in DECISIONS:
        if page.name < LINKED_FROM:  # a page does not change once it is decided
            continue
        for name in re.findall(r"`([\w/]+\.(?:py|java))`", page.read_text(encoding="utf-8")):
            assert any(path.as_posix().endswith(f"/{name}") for path in CODE), (page.name, name)


def test_the_list_of_decisions_has_each() -> None:
    text = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\((\d[\w-]+\.md)\)", text)
    assert sorted(listed) == [page.name for page in DECISIONS]
