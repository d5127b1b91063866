"""Pictures of figures that are no run: curves of a study, outages with their intervals."""

import re
from xml.etree import ElementTree

import pytest

from rekindle_cli.report_html import charts
from rekindle_cli.report_html.charts import ChartLine, Span

SVG = "{http://www.w3.org/2000/svg}"
LINES = [
    ChartLine(panel, name, variant, [(0.1, 0.2), (0.9, height)])
    for panel in ("sharing", "priorities & more")
    for variant in ("few", "many")
    for name, height in (("dp", 1.0), ("greedy", 0.5))
]
SPANS = [
    Span("late <ships>", "incremental", 2.0, 1.0, 4.0),
    Span("late <ships>", "blocking", 8.0, 8.0, 8.0),
    Span("birds", "incremental", 0.0, 0.0, 0.0),
]
CURVES = charts.curves(LINES, eyebrow="18 <queries>", headline="What is back", text="All of it.")
INTERVALS = charts.intervals(SPANS, eyebrow="10 failures", headline="Seconds", text="Each query.")


@pytest.mark.parametrize("text", [CURVES, INTERVALS])
def test_a_picture_is_a_file_by_itself_with_a_style_for_every_mark(text: str) -> None:
    root = ElementTree.fromstring(text)
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc")
    assert not re.search(r"<(script|image|use|foreignObject)|@import|url\(|href=", text)
    sheet = text[text.index("<style>") : text.index("</style>")]
    assert set(re.findall(r"var\((--[\w-]+)\)", sheet)) <= set(re.findall(r"(--[\w-]+):", sheet))
    classes = {word for found in re.findall(r'class="([^"]+)"', text) for word in found.split()}
    assert [word for word in classes if not re.search(rf"\.{word}\b", sheet)] == []


def test_curves_that_are_higher_are_drawn_higher_and_the_second_variant_is_dashed() -> None:
    root = ElementTree.fromstring(CURVES)
    found = {}
    for group in root.iter(f"{SVG}g"):
        line = group.find(f"{SVG}polyline")
        if line is not None:
            found[group.findtext(f"{SVG}title", "")] = line
    assert found.keys() == {"dp, few", "dp, many", "greedy, few", "greedy, many"}

    def end(name: str) -> list[float]:
        return [float(part) for part in found[name].get("points", "").split()[-1].split(",")]

    assert end("dp, few")[1] == 0.0
    assert end("greedy, few")[0] == end("dp, few")[0] > 0.0
    assert end("greedy, few")[1] > end("dp, few")[1]
    assert ["second" in str(found[f"dp, {name}"].get("class")) for name in ("few", "many")] == [
        False,
        True,
    ]


def test_an_interval_has_its_mean_between_its_ends_and_longer_ones_reach_further() -> None:
    root = ElementTree.fromstring(INTERVALS)
    marks = {}
    for group in root.iter(f"{SVG}g"):
        circle, line = group.find(f"{SVG}circle"), group.find(f"{SVG}line")
        if circle is not None and line is not None:
            ends = float(line.get("x1", "")), float(line.get("x2", ""))
            marks[group.findtext(f"{SVG}title", "")] = (*ends, float(circle.get("cx", "")))
    low, high, mean = marks["incremental: 2.0 s (1.0 to 4.0)"]
    assert low < mean < high
    assert marks["blocking: 8.0 s (8.0 to 8.0)"][2] > high
    names = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    assert names == ["late <ships>", "birds"]


def test_of_outages_that_are_all_none_there_is_a_picture_too() -> None:
    ElementTree.fromstring(
        charts.intervals(SPANS[2:], eyebrow="one", headline="Seconds", text="None.")
    )
