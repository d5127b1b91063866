"""The tables of the page: figures at a glance, plans, output rows, queries, settings.

Each function gives one fragment of HTML from the report. `render` places them.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rekindle_cli.report_html import report_text

Report = Mapping[str, Any]


def tiles(report: Report) -> str:
    """Give the four figures that matter most."""
    bound, counts = report["weighted_unavailable_seconds_bound"], report["exactly_once"]
    bad = counts["missing"] + counts["duplicated"] + counts["wrong"]
    first, rate = report["first_plan_epochs"], report["throughput_rows_per_second"]
    figures = (
        (
            report_text.seconds(report["weighted_unavailable_seconds"]),
            "weighted unavailability",
            f"exact plans, instant restore: {report_text.seconds(bound)}"
            if bound is not None
            else "",
            "",
        ),
        (
            report_text.amount(first) if first is not None else "–",
            f"epoch{'' if first == 1 else 's'} to the first plan",
            f"an epoch is {report_text.seconds(report['epoch_seconds'])}",
            "",
        ),
        (
            report_text.amount(bad),
            f"bad output row{'' if bad == 1 else 's'}",
            f"of {report_text.amount(counts['expected_rows'])} expected",
            "bad" if bad else "good",
        ),
        (report_text.amount(rate) if rate is not None else "–", "rows per second read", "", ""),
    )
    return f'<div class="tiles">{"".join(_tile(*figure) for figure in figures)}</div>'


def plans(report: Report) -> str:
    """Give a row per plan: when, with what capacity, which queries it brought back, and which it
    left waiting, and why."""
    if not report["plans"]:
        return "<p>This run made no recovery plan.</p>"
    return _table(
        (
            "plan",
            "at",
            "free CPU",
            "brings back",
            "leaves waiting, and why",
            "priorities",
            "solver",
            "gap",
        ),
        [
            (
                str(number),
                report_text.seconds(plan["at"]),
                f"{report_text.amount(plan['capacity_cpu_percent'])} %",
                ", ".join(plan["queries"]) or "nothing",
                report_text.skipped(plan) or "nothing",
                _number(plan["priority_sum"]),
                str(plan["solver"]),
                _percent(plan["gap"]),
            )
            for number, plan in enumerate(report["plans"], start=1)
        ],
        words_in=(3, 4),
    )


def exactly_once(report: Report) -> str:
    """Give the comparison with the batch answer."""
    counts = report["exactly_once"]
    names = ("expected_rows", "missing", "duplicated", "wrong")
    return (
        "<p>Every output row against a batch computation of the same queries over the same "
        "input.</p>"
        '<div class="few">'
        + _table(
            ("expected", "missing", "duplicated", "wrong"),
            [tuple(report_text.amount(counts[name]) for name in names)],
            words_in=(),
        )
        + "</div>"
    )


def queries(report: Report) -> str:
    """Give a row per query with all its figures, the most important first."""
    return _table(
        (
            "query",
            "priority",
            "survived",
            "normal worst lag",
            "unavailable",
            "beyond its goal",
            "back at",
            "epochs late",
        ),
        [_query(name, report["queries"][name]) for name in report_text.by_priority(report)],
        words_in=(0, 2),
    )


def settings(report: Report) -> str:
    """Give what is needed to run the same again."""
    quota = "enforced" if report["quota_enforced"] else "not enforced"
    pairs = (
        ("strategy", report["strategy"]),
        ("engine", report["engine"]),
        ("buffering", report["buffering"]),
        ("ordering", report["ordering"]),
        ("CPU of a node", f"{report['cpu_quota']:g} cores, {quota}"),
        ("unavailable above", f"{report['theta']:g} × normal worst lag, and by one epoch"),
        ("beyond lag goals, weighted", _weighted_beyond_goal(report)),
        ("stabilisation", report_text.seconds(report["stabilisation_seconds"])),
        ("nodes killed", ", ".join(report["victims"])),
        ("rows that came too late", _flat(report.get("late_rows", {})) or "none"),
        ("seed", report["seed"]),
        ("commit", report["commit"]),
        ("machine", _flat(report["machine"])),
    )
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>" for name, value in pairs
    )
    return f"<dl>{items}</dl>"


def _weighted_beyond_goal(report: Report) -> str:
    seconds = report.get("weighted_beyond_goal_seconds")
    return "no query has a goal" if seconds is None else report_text.seconds(seconds)


def _query(name: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    back = record["back_at"]
    return (
        name,
        report_text.amount(record["priority"]),
        "yes" if record["survived"] else "no",
        report_text.seconds(record["normal_worst_lag_seconds"]),
        report_text.seconds(record["unavailable_seconds"]),
        _beyond_goal(record),
        report_text.seconds(back)
        if back is not None
        else "never"
        if record["unavailable"]
        else "–",
        str(record["epochs_lost"]),
    )


def _beyond_goal(record: Mapping[str, Any]) -> str:
    """For how long the lag was above its goal; older reports, and queries, have none."""
    goal = record.get("lag_goal_seconds")
    if goal is None:
        return "–"
    return f"{report_text.seconds(record['beyond_goal_seconds'])} above {report_text.seconds(goal)}"


def _tile(value: str, name: str, note: str, kind: str) -> str:
    return (
        f'<div class="tile {kind}"><b>{escape(value)}</b><span>{escape(name)}</span>'
        f"<small>{escape(note)}</small></div>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], words_in: Sequence[int]) -> str:
    def cell(tag: str, column: int, text: str) -> str:
        kind = ' class="words"' if column in words_in else ""
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{kind}{scope}>{escape(text)}</{tag}>"

    head = "".join(cell("th", column, text) for column, text in enumerate(heads))
    body = "".join(
        f"<tr>{''.join(cell('td', column, text) for column, text in enumerate(row))}</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _number(value: float | None) -> str:
    return "–" if value is None else report_text.amount(value)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_flat(inner)}" for name, inner in value.items())
    return str(value)
