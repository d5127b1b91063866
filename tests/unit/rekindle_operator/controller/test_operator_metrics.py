"""The page on metrics: it has each of the operator's, with type and labels, and no other."""

import re
import time
from pathlib import Path

from prometheus_client import Histogram

from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_health import DriverFigures
from rekindle_operator.controller.operator_metrics import OperatorMetrics, ShownOutlooks
from rekindle_operator.policies.policy_conditions import DomainLossForecast
from rekindle_operator.webhook import webhook_server

DOCS = Path(__file__).parents[4] / "docs"
ROW = re.compile(
    r"^\| `(?P<name>\w+)(?:\{(?P<labels>[\w, ]+)\})?` \| (?P<type>\w+)(?:, acting)? "
    r"\| (?P<unit>[^|]+) \| (?P<meaning>[^|]+) \|.*\|$",
    re.MULTILINE,
)
METRIC = re.compile(r"\brekindle_(?:operator|coordinator)_\w+")


def registered() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Type and labels of all that replicas of operator and webhook have, by a query's name."""
    figures = OperatorMetrics()
    webhooks = [
        make(figures.registry) for make in (webhook_server.make_counter, webhook_server.make_gauge)
    ]
    collectors = [*vars(figures).values(), *webhooks]
    known = {}
    for collector in collectors:
        if hasattr(collector, "_labelnames"):
            (family,) = collector.describe()
            suffix = "_total" if family.type == "counter" else ""
            known[family.name + suffix] = (family.type, tuple(collector._labelnames))
        elif isinstance(collector, DriverFigures):
            for family in collector.describe():
                suffix = "_total" if family.type == "counter" else ""
                known[family.name + suffix] = (family.type, tuple(family._labelnames))
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


def sample(figures: OperatorMetrics, name: str) -> float:
    value = figures.registry.get_sample_value(name)
    assert value is not None
    return value


def test_leases_that_were_never_listed_grow_old_from_the_start() -> None:
    figures = OperatorMetrics()
    name = "rekindle_operator_leases_age_seconds"
    first = sample(figures, name)
    time.sleep(0.01)
    assert sample(figures, name) > first >= 0
    heard_at = time.monotonic() - 100
    figures.leases_heard_at = lambda: heard_at
    assert 100 <= sample(figures, name) < 100 + 60


def test_outlooks_are_shown_as_they_are_now_and_of_no_application_that_is_gone() -> None:
    figures = OperatorMetrics()
    shown = ShownOutlooks(figures.stopped_by_loss)
    first, second = Place("one", "app"), Place("two", "app")
    stays = DomainLossForecast({"zone-1": 0.5})
    steps: list[dict[Place, DomainLossForecast | None]] = [
        {first: DomainLossForecast({"zone-1": 0.75, "zone-2": 0.25}), second: stays},
        {first: DomainLossForecast({"zone-2": 1.0}), second: stays},
        {first: None, second: stays},
        {second: stays},
        {first: DomainLossForecast({"zone-1": 0.25})},
        {},
    ]
    for step in steps:
        shown.show(step)
        (family,) = figures.stopped_by_loss.collect()
        assert {tuple(item.labels.values()): item.value for item in family.samples} == {
            (place.namespace, place.application, domain): share
            for place, outlook in step.items()
            if outlook is not None
            for domain, share in outlook.stopped_shares.items()
        }
