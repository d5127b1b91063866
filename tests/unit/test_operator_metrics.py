"""The page on metrics: it has each of the operator's, with type and labels, and no other."""

import re
from pathlib import Path

from prometheus_client import Histogram

from rekindle_operator.injection import serving
from rekindle_operator.shell.metrics import OperatorMetrics

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(
    r"^\| `(?P<name>\w+)(?:\{(?P<labels>[\w, ]+)\})?` \| (?P<type>\w+)(?:, acting)? "
    r"\| (?P<unit>[^|]+) \| (?P<meaning>[^|]+) \|.*\|$",
    re.MULTILINE,
)
METRIC = re.compile(r"\brekindle_(?:operator|coordinator)_\w+")


def registered() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Type and labels of all that a replica has, by the name that a query uses."""
    figures = OperatorMetrics()
    collectors = {*vars(figures).values(), serving.make_counter(figures.registry)}
    known = {}
    for collector in collectors:
        if hasattr(collector, "_labelnames"):
            (family,) = collector.describe()
            suffix = "_total" if family.type == "counter" else ""
            known[family.name + suffix] = (family.type, tuple(collector._labelnames))
    assert {name.removesuffix("_total") for name in known} == {
        family.name for family in figures.registry.collect()
    }
    return known


def page() -> str:
    return (DOCS / "metrics.md").read_text(encoding="utf-8")


def test_the_page_has_every_metric_with_its_type_and_labels_and_no_other() -> None:
    rows = [row.groupdict() for row in ROW.finditer(page())]
    told = {
        row["name"]: (row["type"], tuple((row["labels"] or "").replace(" ", "").split(",")))
        for row in rows
    }
    assert len(told) == len(rows)
    assert told == {
        name: (type_, labels or ("",)) for name, (type_, labels) in registered().items()
    }


def test_queries_of_the_page_and_of_runbooks_name_metrics_that_there_are() -> None:
    known = set(registered())
    for name, (type_, _) in registered().items():
        if type_ == Histogram._type:
            known |= {f"{name}{suffix}" for suffix in ("_bucket", "_sum", "_count")}
    for path in (DOCS / "metrics.md", *sorted((DOCS / "runbooks").glob("*.md"))):
        unknown = set(METRIC.findall(path.read_text(encoding="utf-8"))) - known
        assert not unknown - {"rekindle_coordinator_", "rekindle_operator_"}, path.name
