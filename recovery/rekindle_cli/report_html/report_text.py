"""Sentences and formatted figures for the page.

Plain text, not escaped. The page and its parts call it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

# Of a machine's cores, what other programs must have used to be named.
OTHERS_SHARE_MIN = 0.05
REASONS = {
    "no-capacity": "no room now",
    "does-not-fit-a-node": "no room on a single node now",
    "unplaceable": "larger than what any node has free",
    "put-off": "no room on these nodes, even later",
}

Report = Mapping[str, Any]


def headline(report: Report) -> str:
    """Say in one line what was lost and how long it took; an interruption shorter than an epoch
    is none here."""
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
            machine_limit(report),
            _rows(report),
            _quota(report),
        )
        if sentence
    )


def machine_limit(report: Report) -> str:
    """Say for how long the machine of the run was the limit; nothing in reports of releases that
    did not measure it."""
    if "machine_limit" not in report:
        return ""
    found = report["machine_limit"]
    if found is None:
        return "Whether this machine was the limit was not measured."
    of_all = f"{seconds(found['of_seconds'])} from the warm-up on"
    if not found["seconds"]:
        return f"This machine was never the limit in the {of_all}."
    said = (
        f"This machine was the limit for {seconds(found['seconds'])} of the {of_all}: all its CPU "
        "was used, and what ran waited for it"
    )
    cores, others = found["cores"], found["other_cores"]
    if cores and others >= OTHERS_SHARE_MIN * cores:
        said += f", while other programs used {amount(others)} of {_cores(cores)}"
    return f"{said}."


def skipped(plan: Mapping[str, Any]) -> str:
    """Say which queries a plan left waiting, by reason, and why the most important of them waits
    while something less important runs."""
    by_reason: dict[str, list[str]] = {}
    for query in plan.get("skipped", ()):
        said = REASONS.get(query["reason"], query["reason"])
        by_reason.setdefault(said, []).append(f"{query['query']} ({amount(query['priority'])})")
    left = "; ".join(f"{reason}: {', '.join(names)}" for reason, names in by_reason.items())
    return " ".join(part for part in (f"{left}." if left else "", plan.get("why") or "") if part)


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
    interrupted = sum(1 for query in survived if _outages(query, report))
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
    never = _never(report)
    return sorted(
        outages[-1][1]
        for name, query in report["queries"].items()
        if name not in never and (outages := _outages(query, report))
    )


def _never(report: Report) -> list[str]:
    return [
        name
        for name, query in report["queries"].items()
        if query["back_at"] is None and _outages(query, report)
    ]


def _outages(query: Mapping[str, Any], report: Report) -> list[Sequence[float]]:
    """The times in which a query was unavailable for an epoch or longer."""
    least = report.get("epoch_seconds") or 0.0
    return [(begin, end) for begin, end in query["unavailable"] if end - begin >= least]


def _cores(count: float) -> str:
    return f"{count:g} core{'' if count == 1 else 's'}"


def _count(report: Report) -> int:
    return len(report["queries"])


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
