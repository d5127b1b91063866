"""The picture of a report as a file of its own, and the nodes that come and go in it."""

import re
import time
from typing import Any
from xml.etree import ElementTree

import pytest

from rekindle import report
from rekindle.model.run_events import Event
from rekindle_cli.report_html import svg_picture, timeline
from rekindle_testing import run_builders
from rekindle_testing.run_builders import BuiltScenario

SVG = "{http://www.w3.org/2000/svg}"
RIGHT = {"expected_rows": 1234, "missing": 0, "duplicated": 0, "wrong": 0}
RUN = run_builders.make(
    BuiltScenario({"low": 1.0, "top & <b>": 9.0, "safe": 2.0, "odd": 3.0}, nodes=3, cpu_quota=0.75)
)


def figures(events: tuple[Event, ...] = RUN.events) -> dict[str, Any]:
    return report.compute(
        events, RUN.facts, RUN.input_record, RUN.problems, RUN.answers, RIGHT, time.monotonic
    )


def drawn(events: tuple[Event, ...] = RUN.events) -> str:
    return svg_picture.draw(figures(events), events, "zone-loss, <incremental>")


def with_events(*more: Event) -> tuple[Event, ...]:
    return tuple(sorted((*RUN.events, *more), key=lambda event: event.t))


def test_the_file_is_xml_that_says_what_it_shows() -> None:
    root = ElementTree.fromstring(drawn())
    assert root.tag == f"{SVG}svg"
    assert "Availability of 4 queries, 2 of 3 nodes lost." in root.findtext(f"{SVG}title", "")
    assert root.findtext(f"{SVG}desc")
    shown = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    assert shown == ["top & <b>", "odd", "safe", "low"]


def test_the_file_needs_nothing_from_outside() -> None:
    assert not re.search(r"<(script|image|use|foreignObject)|@import|url\(|href=", drawn())


def test_every_variable_and_class_of_the_file_has_its_style() -> None:
    text = drawn()
    sheet = text[text.index("<style>") : text.index("</style>")]
    assert set(re.findall(r"var\((--[\w-]+)\)", sheet)) <= set(re.findall(r"(--[\w-]+):", sheet))
    classes = {word for found in re.findall(r'class="([^"]+)"', text) for word in found.split()}
    unstyled = {word for word in classes if not re.search(rf"\.{word}\b", sheet)}
    assert unstyled == {"query"}


def test_the_same_records_make_the_same_picture() -> None:
    assert drawn() == drawn()


def test_a_later_loss_has_a_mark_of_its_own() -> None:
    later = Event(20.0, "kill", node="127.0.0.3")
    text = drawn(with_events(later))
    assert text.count('<line class="kill"') == drawn().count('<line class="kill"') + 1
    assert "127.0.0.3 killed at 20.0\u00a0s" in text
    assert ">−1</text>" in text


def test_losses_within_a_second_are_one_mark() -> None:
    text = drawn(with_events(Event(0.6, "kill", node="127.0.0.2")))
    assert text.count('<line class="kill"') == drawn().count('<line class="kill"')
    assert "3 nodes killed" in text


def test_plans_before_the_picture_are_not_drawn_at_its_edge() -> None:
    told = figures()
    early = {**told["plans"][0], "at": -60.0}
    text = svg_picture.draw({**told, "plans": [early, *told["plans"]]}, RUN.events, "run")
    assert text.count('<g class="plan">') == len(told["plans"])
    assert "Plan 1 at" not in text
    assert "Plan 2 at" in text


def kill(t: float, node: str) -> Event:
    return Event(t, "kill", node=node)


def returned(t: float, node: str) -> Event:
    return Event(t, "returned", node=node)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param((), [], id="nothing happens"),
        pytest.param(
            (kill(0, "a"), kill(0, "b"), returned(9, "a")), [(0, 1), (9, 2)], id="one comes back"
        ),
        pytest.param(
            (kill(0, "a"), returned(9, "new"), kill(12, "new")),
            [(0, 2), (9, 3), (12, 2)],
            id="another comes in its place, and is lost too",
        ),
        pytest.param((kill(0, "a"), kill(4, "a")), [(0, 2)], id="killed twice, lost once"),
        pytest.param(
            (returned(-5, "b"), kill(0, "a"), returned(6, "b")),
            [(0, 2)],
            id="the executor of a survivor is started again",
        ),
        pytest.param(
            (returned(-5, "a"), returned(3, "x")), [(3, 3)], id="never more than there should be"
        ),
    ],
)
def test_nodes_alive_follow_losses_and_returns(
    events: tuple[Event, ...], expected: list[tuple[float, int]]
) -> None:
    assert timeline.alive({"nodes": 3}, events) == expected
