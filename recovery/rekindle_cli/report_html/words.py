"""Sentences and formatted figures for the page.

Plain text, not escaped. The page and its parts call it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["amount", "by_priority", "headline", "interval", "seconds", "short_names", "story"]

Report = Mapping[str, Any]


def headline(report: Report) -> str:
    """Say in one line what was lost and how long it took."""
    lost = f"{report['killed']} of {report['nodes']} nodes lost."
    back = _back_times(report)
    if not back:
        return f"{lost} Nothing came back." if _never(report) else f"{lost} No query went down."
    if _never(report):
        return f"{lost} {len(_never(report))} of {_count(report)} never came back."
    if back[0] == back[-1]:
        return f"{lost} {'The query' if len(back) == 1 else 'All'} back after {seconds(back[0])}."
    return f"{lost} First query back after {seconds(back[0])}, the last after {seconds(back[-1])}."


def story(report: Report) -> str:
    """Say in a few sentences what happened, the bad with the good."""
    return " ".join(
        sentence
        for sentence in (
            _survivors(report),
            _return_order(report),
            _weighed(report),
            _rows(report),
            _quota(report),
        )
        if sentence
    )


def seconds(value: float) -> str:
    """Format a time: 0.42 s, 12.3 s, 124 s."""
    digits = 2 if abs(value) < 1 and value else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}\u00a0s"


def amount(value: float) -> str:
    """Format a number with groups of three digits and no needless decimals."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.1f}"


def interval(start: float, end: float) -> str:
    """Format a span of time."""
    return f"{seconds(start)} to {seconds(end)}"


def by_priority(report: Report) -> list[str]:
    """Give the queries, the most important first, those of equal priority by name."""
    queries = report["queries"]
    return sorted(queries, key=lambda name: (-queries[name]["priority"], name))


def short_names(nodes: Sequence[str]) -> Mapping[str, str]:
    """Shorten node names by the part that all have in common, up to a separator."""
    first, last = min(nodes, default=""), max(nodes, default="")
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    while same and first[same - 1].isalnum():
        same -= 1
    return {node: node[max(0, same - 1) :] for node in nodes}


def _survivors(report: Report) -> str:
    survived = [query for query in report["queries"].values() if query["survived"]]
    if not survived:
        return "The failure hit every query."
    interrupted = sum(1 for query in survived if query["unavailable"])
    if not interrupted:
        return (
            f"{len(survived)} of {_count(report)} queries lay wholly on surviving nodes and ran "
            "on without interruption."
        )
    return (
        f"{len(survived)} of {_count(report)} queries lay wholly on surviving nodes; "
        f"{interrupted} of them {_were(interrupted)} interrupted all the same."
    )


def _return_order(report: Report) -> str:
    hit = sum(1 for query in report["queries"].values() if not query["survived"])
    never, plans = len(_never(report)), len(report["plans"])
    if not hit:
        return ""
    by = f" by {plans} plan{_s(plans)}" if plans else ""
    if never:
        return f"Of the {hit} that it hit, {hit - never} came back{by} and {never} did not."
    return f"The {'other ' if hit < _count(report) else ''}{hit} came back{by}, as nodes returned."


def _weighed(report: Report) -> str:
    weighted = report["weighted_unavailable_seconds"]
    bound = report["weighted_unavailable_seconds_bound"]
    text = f"Weighed by priority, a query was unavailable for {seconds(weighted)}"
    if not bound:
        return f"{text}."
    return (
        f"{text}, {weighted / bound:.2f} times what exact plans with no restore time "
        f"would have allowed ({seconds(bound)})."
    )


def _rows(report: Report) -> str:
    counts = report["exactly_once"]
    bad = {name: counts[name] for name in ("missing", "duplicated", "wrong") if counts[name]}
    if not bad:
        return f"All {amount(counts['expected_rows'])} output rows are right, each exactly once."
    told = ", ".join(f"{amount(count)} {name}" for name, count in bad.items())
    return f"Of {amount(counts['expected_rows'])} expected output rows: {told}."


def _quota(report: Report) -> str:
    if report["quota_enforced"]:
        return ""
    return "CPU quotas were not enforced, so these times say nothing about full nodes."


def _back_times(report: Report) -> list[float]:
    return sorted(
        query["back_at"]
        for query in report["queries"].values()
        if query["back_at"] and query["unavailable"]
    )


def _never(report: Report) -> list[str]:
    return [
        name
        for name, query in report["queries"].items()
        if query["back_at"] is None and query["unavailable"]
    ]


def _count(report: Report) -> int:
    return len(report["queries"])


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
