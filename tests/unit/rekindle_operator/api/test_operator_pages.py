"""Pages for who is on call: all alerts, reasons, options, lines of the log, and no others."""

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest
import yaml

from rekindle.model.reasons import Reason
from rekindle_operator.api.custom_resources import ResourceReason
from rekindle_operator.controller.operator_main import operate
from rekindle_operator.detection.detection_events import DetectionReason
from rekindle_operator.policies.policy_selection import ProtectionReason
from rekindle_operator.recovery.recovery_reasons import RecoveryReason

ROOT = Path(__file__).parents[4]
DOCS = ROOT / "docs"
RUNBOOKS = DOCS / "runbooks"
PAGES = (
    DOCS / "operator.md",
    DOCS / "metrics.md",
    DOCS / "resources.md",
    *sorted(RUNBOOKS.glob("*.md")),
)
LISTS: tuple[type[StrEnum], ...] = (
    Reason,
    ResourceReason,
    ProtectionReason,
    DetectionReason,
    RecoveryReason,
)
SECTIONS = ["What it means", "What to look at", "What to do"]
# Where lines are written that are the operator's own; the coordinator's are in docs/coordinator.md.
WRITERS = (
    *sorted((ROOT / "operator/rekindle_operator").rglob("*.py")),
    ROOT / "operator/rekindle_operator/webhook/webhook_server.py",
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
LINE_LENGTH_MAX = 130


def alerts() -> dict[str, dict[str, str]]:
    text = (ROOT / "charts/rekindle/files/alerts.yaml").read_text(encoding="utf-8")
    return {alert["alert"]: alert for alert in yaml.safe_load(text)}


def headings(path: Path, level: int) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"^{'#' * level} (.+)$", text, re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README", "reasons"}
    assert pages == set(alerts())
    for name in pages:
        path = RUNBOOKS / f"{name}.md"
        assert headings(path, 1) == [name]
        assert headings(path, 2) == SECTIONS


def test_the_list_of_runbooks_has_every_alert_with_its_severity_in_the_order_of_the_chart() -> None:
    text = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \|", text, re.MULTILINE)
    assert rows == [(name, name, alert["severity"]) for name, alert in alerts().items()]


def test_every_reason_has_its_section_and_every_section_is_a_reason() -> None:
    sections = headings(RUNBOOKS / "reasons.md", 3)
    assert len(sections) == len(set(sections))
    assert set(sections) == {str(word) for words in LISTS for word in words}


def options() -> Iterator[tuple[str, str]]:
    """Options of the command with their defaults, as the page writes them where they are plain."""
    for name, parameter in inspect.signature(operate).parameters.items():
        default = parameter.default
        plain = default not in (inspect.Parameter.empty, None, "")
        yield f"--{name.replace('_', '-')}", str(default) if plain else ""


def test_the_page_has_every_option_with_its_default() -> None:
    text = (DOCS / "operator.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(--[a-z-]+)[^`]*` \| ([^|]+) \|", text, re.MULTILINE))
    known = dict(options())
    assert set(rows) == set(known)
    for name, default in known.items():
        assert not default or rows[name].strip("`") == default, name


def written() -> dict[str, set[str]]:
    """Fields of each kind of line that the shell writes, as its sources say."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in WRITERS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _writes(node):
                fields = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
                for part in ast.walk(node.args[0]):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        found[part.value] |= fields
    # told once by a function of its own, which adds the text
    for word in ("certificate-refused", "certificate-failed"):
        found[word].add("text")
    return found


def _writes(call: ast.Call) -> bool:
    words = ast.unparse(call.func).rpartition("log.")[2]
    named = words in ("write", "self._tell", "self._tell_once")
    return named and bool(call.args) and not isinstance(call.args[0], ast.Name)


def errands() -> set[str]:
    """First words of the errands that the shell leaves."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in WRITERS)
    return set(re.findall(r"\.leave\(\s*f?\"([a-z-]+)", sources))


def test_the_page_on_failing_errands_has_every_kind_of_errand() -> None:
    text = (RUNBOOKS / "RekindleApiWritesFailing.md").read_text(encoding="utf-8")
    told = {
        word
        for kinds in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
        for word in re.findall(r"`([a-z-]+)", kinds)
    } - {"errand"}
    known = errands()
    assert "measure" in known
    assert known <= told, known - told


def test_the_list_of_pages_has_every_page() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert pages <= set(re.findall(r"\(([\w-]+\.md)\)", text))


def test_no_page_names_a_namespace_of_the_operator_but_that_of_the_installation() -> None:
    for path in DOCS.rglob("*.md"):
        assert "rekindle-system" not in path.read_text(encoding="utf-8"), path.name


def test_the_page_has_every_kind_of_line_in_the_log_with_its_fields() -> None:
    text = (DOCS / "operator.md").read_text(encoding="utf-8")
    section = text.partition("## The log")[2].partition("\n## ")[0]
    told: dict[str, set[str]] = {}
    for kinds, fields in re.findall(r"^\| (`[^|]+`) \| ([^|;]*)[^|]*\|", section, re.MULTILINE):
        for kind in re.findall(r"`([\w-]+)`", kinds):
            told[kind] = set(re.findall(r"\w+", fields))
    assert told == written()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere_and_lines_can_be_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in LINK.findall(text):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.is_file(), f"{path.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{path.name}: {target}"
    for number, line in enumerate(text.splitlines(), start=1):
        prose = not line.startswith(("|", "    ", "`"))
        assert not prose or len(line) <= LINE_LENGTH_MAX, f"{path.name}:{number}"
