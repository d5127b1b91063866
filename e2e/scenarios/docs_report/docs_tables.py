"""Figures of scenarios as tables of Markdown: what each run came to, and figures with bars.

Pure: from values to text. `docs_page` puts them into the document.
"""

from collections.abc import Iterable, Mapping, Sequence

from rekindle_cli.report_html import report_text
from scenarios import strategies
from scenarios.docs_report.scenario_folders import SPARK_ALONE_SHOWN, Figure, FoundRuns, RecordedRun

NONE = "–"
HEADS = (
    "scenario",
    "what is lost",
    "strategy",
    "queries that survived",
    "first plan after, s",
    "first query back, s",
    "all back, s",
    "weighted unavailability, s",
    "÷ blocking",
    "÷ Spark alone",
    "rows a second",
    "rows checked",
    "missing, doubled, wrong",
)
WORDS = 3


def outcomes(found: FoundRuns, losses: Mapping[str, str]) -> str:
    """A row for each run, with the figures of report.json; what is lost is said once."""
    rows, told = [], set()
    for run in found.runs:
        is_first = run.scenario not in told
        told.add(run.scenario)
        names = (run.scenario, losses[run.scenario]) if is_first else ("", "")
        rows.append((*names, run.manner, *_outcome(run, found)))
    return _table(HEADS, rows, words_first=WORDS)


def bars(found: FoundRuns) -> str:
    """A row for each figure of a figures.json; empty without any."""
    rows = [
        (run.scenario, run.manner, name, *_against_bar(figure))
        for run in found.runs
        for name, figure in run.figures.items()
    ]
    heads = ("scenario", "strategy", "figure", "value", "at most", "met")
    return _table(heads, rows, words_first=WORDS) if rows else ""


def _outcome(run: RecordedRun, found: FoundRuns) -> tuple[str, ...]:
    report, rows = run.report, run.report.exactly_once
    queries = report.queries.values()
    away = [query for query in queries if query.unavailable]
    back = [query.back_at for query in away if query.back_at is not None]
    never = len(away) - len(back)
    survived = sum(query.survived for query in queries)
    return (
        f"{survived} of {len(queries)}",
        _seconds(report.first_plan_seconds),
        _seconds(min(back, default=None)),
        f"{never} never" if never else _seconds(max(back, default=None)),
        _seconds(report.weighted_unavailable_seconds),
        _ratio(run, found.beside(run, strategies.BLOCKING)),
        _ratio(run, found.beside(run, SPARK_ALONE_SHOWN)),
        _amount(report.throughput_rows_per_second),
        report_text.amount(rows.expected_rows),
        ", ".join(
            report_text.amount(count) for count in (rows.missing, rows.duplicated, rows.wrong)
        ),
    )


def _ratio(run: RecordedRun, other: RecordedRun | None) -> str:
    """Our unavailability over another run's."""
    if other is None or not run.is_ours or not other.report.weighted_unavailable_seconds:
        return NONE
    ours, others = (one.report.weighted_unavailable_seconds for one in (run, other))
    return f"{ours / others:.2f}"


def _against_bar(figure: Figure) -> tuple[str, str, str]:
    value = f"{figure.value:.4g} {figure.unit}"
    if figure.bar is None:
        return value, NONE, NONE
    return value, f"{figure.bar:g} {figure.unit}", "yes" if figure.value <= figure.bar else "no"


def _amount(value: float | None) -> str:
    return NONE if value is None else report_text.amount(round(value))


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, words_first: int) -> str:
    """Columns of words to the left, then figures to the right."""
    rule = ["---" if column < words_first else "--:" for column in range(len(heads))]
    return "\n".join(_line(row) for row in (heads, rule, *rows))


def _line(cells: Iterable[str]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
