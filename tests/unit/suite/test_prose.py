"""Plain English: how often pages, docstrings and comments use words that a reader has to translate.

A group of files has a budget per 1,000 words for each kind of word: the rate that it has reached.
Lower a budget when a group has become better. STYLE.md says what to write instead.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
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
# Pages that a newcomer reads first have none of these words.
FIRST = [
    *ROOT.glob("*.md"),
    *(DOCS / name for name in ("README.md", "overview.md", "commands.md", "runtime.md")),
    DOCS / "invariants.md",
    DOCS / "first-pipeline.md",
    DOCS / "quickstart.md",
    *(DOCS / "flows").glob("*.md"),
    *(page for page in (DOCS / "decisions").glob("*.md") if not page.name < "0010"),
]
# Pages that were written before this test for people who use or run Rekindle.
USED = [
    DOCS / f"{name}.md"
    for name in (
        "coordinator detection development install kubectl operations operator output "
        "overhead pipelines planning recipes report settings simulation standalone stores zookeeper"
    ).split()
]
RUNBOOKS = [*(DOCS / "runbooks").glob("*.md")]


def code(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


GROUPS = {
    "first pages": [page for page in FIRST if page.name not in ("CHANGELOG.md",)],
    "used pages": USED,
    "runbooks": RUNBOOKS,
    "other pages": sorted({*DOCS.glob("*.md")} - {*FIRST, *USED}),
    **{folder: code(folder) for folder in ("recovery", "operator", "benchmarks", "e2e", "tests")},
}
# Occurrences per 1,000 words.
BUDGET: dict[str, tuple[float, float, float, float]] = {
    "first pages": (0, 0, 0, 0),
}


@cache
def prose(path: Path) -> str:
    """A page without code, headings, links' targets and quotations; of code, what people read."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return "\n".join([*docstrings(text), *comments(text)])
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:    |#).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    return re.sub(r"\]\([^)\s]*\)", "]", text)


def docstrings(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield re.sub(r"`[^`\n]*`", "", ast.get_docstring(node) or "")


def comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


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
