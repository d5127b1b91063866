"""Plain English: how often pages, docstrings and comments use words that a reader has to translate.

A group of files has a budget per 1,000 words for each kind of word: the rate that it has reached.
Lower a budget when a group has become better. STYLE.md says what to write instead.
"""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
# A kind of word, and what to write instead.
BANNED = {
    "headless what": (
        re.compile(r"\bwhat(?:ever)?\b(?![^.!?]*\?)", re.IGNORECASE),
        "name the thing: 'lost partitions', not 'what is lost'",
    ),
    "tell and hear": (
        re.compile(r"\b(?:tells?|told|telling|hears?|heard|hearing)\b", re.IGNORECASE),
        "report, log, record, send, receive",
    ),
    "whoever": (
        re.compile(r"\bwhoever\b|(?:^|[.:;] )Who (?!\w+ \w+[^.]*\?)", re.MULTILINE),
        "name it: the caller, the coordinator, a client",
    ),
    "archaic words": (
        re.compile(
            r"\b(?:anew|for ever|in vain|all the same|otherwise than|hitherto|thereof)\b",
            re.IGNORECASE,
        ),
        "again, permanently, unnecessarily, anyway, different from",
    ),
}
# Strings that begin a line are docstrings but for a few; parsing a thousand files takes a minute.
DOCSTRING = re.compile(r'^ *"""(.*?)"""', re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"(?:^|  )# (.*)$", re.MULTILINE)
QUOTED = re.compile(r'`[^`\n]*`|"[^"\n]*"')
# Pages that a newcomer reads first have none of these words.
FIRST = [
    *(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"),
    *(DOCS / name for name in ("README.md", "overview.md", "commands.md", "runtime.md")),
    DOCS / "invariants.md",
    DOCS / "first-pipeline.md",
    DOCS / "quickstart.md",
    *(DOCS / "flows").glob("*.md"),
    *(page for page in (DOCS / "decisions").glob("*.md") if page.name >= "0010"),
]
# Pages for people who use or run Rekindle.
USED = [
    DOCS / "coordinator.md",
    DOCS / "detection.md",
    DOCS / "development.md",
    DOCS / "install.md",
    DOCS / "kubectl.md",
    DOCS / "operations.md",
    DOCS / "operator.md",
    DOCS / "output.md",
    DOCS / "overhead.md",
    DOCS / "pipelines.md",
    DOCS / "planning.md",
    DOCS / "recipes.md",
    DOCS / "report.md",
    DOCS / "settings.md",
    DOCS / "simulation.md",
    DOCS / "standalone.md",
    DOCS / "stores.md",
    DOCS / "zookeeper.md",
]
RUNBOOKS = [*(DOCS / "runbooks").glob("*.md")]


def code(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


GROUPS = {
    "first pages": FIRST,
    "used pages": USED,
    "runbooks": RUNBOOKS,
    "other pages": sorted({*DOCS.glob("*.md")} - {*FIRST, *USED}),
    **{folder: code(folder) for folder in ("recovery", "operator", "benchmarks", "e2e", "tests")},
}
# Occurrences per 1,000 words, in the order of BANNED. The code that admired projects write has 0.1
# to 0.4 of the first kind and up to 0.1 of the second.
BUDGET = {
    "first pages": (0.0, 0.0, 0.0, 0.0),
    "used pages": (0.2, 0.1, 0.1, 0.1),
    "runbooks": (0.2, 0.1, 0.0, 0.0),
    "other pages": (3.3, 0.4, 0.2, 0.1),
    "recovery": (16.5, 1.5, 0.6, 0.7),
    "operator": (18.5, 4.6, 1.3, 1.2),
    "benchmarks": (18.5, 2.8, 0.6, 0.6),
    "e2e": (17.0, 2.0, 0.7, 1.0),
    "tests": (19.5, 2.9, 0.7, 0.5),
}


@cache
def prose(path: Path) -> str:
    """A page without code, headings, links' targets and quotations; of code, what people read."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return QUOTED.sub("", "\n".join([*DOCSTRING.findall(text), *COMMENT.findall(text)]))
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:    |#).*$", "", text, flags=re.MULTILINE)
    text = QUOTED.sub("", text)
    return re.sub(r"\]\([^)\s]*\)", "]", text)


def rate(group: str, kind: str) -> float:
    """Occurrences per 1,000 words."""
    texts = [prose(path) for path in GROUPS[group]]
    words = sum(len(re.findall(r"[A-Za-z']+", text)) for text in texts)
    found = sum(len(BANNED[kind][0].findall(text)) for text in texts)
    return 1000 * found / words


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_of_files_keeps_its_budget_of_words_to_translate(group: str) -> None:
    for kind, most in zip(BANNED, BUDGET[group], strict=True):
        assert rate(group, kind) <= most, f"{group}: {kind}; {BANNED[kind][1]}"


def test_the_patterns_find_the_words_and_leave_questions_alone() -> None:
    found = {kind: pattern for kind, (pattern, _) in BANNED.items()}
    assert found["headless what"].search("What is lost comes back.")
    assert not found["headless what"].search("What is lost?")
    assert found["tell and hear"].search("The driver is told of it.")
    assert found["whoever"].search("It ends. Who is not seen is gone.")
    assert not found["whoever"].search("Who may write there?")
    assert found["archaic words"].search("It is begun anew.")
