"""The report as one page of HTML: a picture of the recovery, and the figures in words and tables.

    report_text     sentences and formatted figures
    time_axis       time to pixels, ticks, labels that do not overlap
    timeline        the picture, an SVG drawn by hand: nodes, plans, a row per query
    svg_picture     the same as a file of its own
    charts          pictures of figures that are no run: curves, and intervals
    report_tables   queries, plans, output rows and the run's settings as tables
    report_style    the style sheet, light and dark

`render` needs nothing from outside the page: no script, no font, no link. The demo calls it with
what it writes to `report.json` and `events.jsonl`.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rekindle.model.run_events import Event
from rekindle_cli.report_html import report_style, report_tables, report_text, timeline

__all__ = ["render"]


def render(report: Mapping[str, Any], events: Sequence[Event]) -> str:
    """Give the page for a report (as in `report.json`) and the events of its run."""
    headline = report_text.headline(report)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Rekindle: {escape(headline)}</title>
<style>
{report_style.SHEET}
</style>
</head>
<body>
<main>
<header>
<p class="eyebrow">Rekindle <span>recovery report</span></p>
<h1>{escape(headline)}</h1>
<p class="story">{escape(report_text.story(report))}</p>
</header>
{report_tables.tiles(report)}
<section aria-labelledby="timeline">
<h2 id="timeline">What came back, and when</h2>
{timeline.legend()}
<div class="picture">
{timeline.draw(report, events)}
</div>
</section>
<section aria-labelledby="plans">
<h2 id="plans">Plans</h2>
{report_tables.plans(report)}
</section>
<section aria-labelledby="rows">
<h2 id="rows">Output rows</h2>
{report_tables.exactly_once(report)}
</section>
<section aria-labelledby="queries">
<h2 id="queries">Queries in figures</h2>
{report_tables.queries(report)}
</section>
<section aria-labelledby="run">
<h2 id="run">The run</h2>
{report_tables.settings(report)}
</section>
</main>
</body>
</html>
"""
