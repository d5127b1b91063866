"""The page of a report: self-contained, well-formed, the most important query first."""

import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from rekindle import report
from rekindle_cli import report_html
from rekindle_cli.report_html import report_text, time_axis
from rekindle_cli.report_html.time_axis import TimeScale
from rekindle_testing import run_builders
from rekindle_testing.run_builders import BuiltRun, BuiltScenario

PRIORITIES = {"low": 1.0, "top & <b>": 9.0, "middle": 5.0, "safe": 2.0, "odd": 3.0}
SCENARIO = BuiltScenario(PRIORITIES, nodes=3, killed=2, cpu_quota=0.75)
RIGHT = {"expected_rows": 1234, "missing": 0, "duplicated": 0, "wrong": 0}
VOID = {"meta", "br"}


def figures(run: BuiltRun, rows: dict[str, int] = RIGHT) -> dict[str, Any]:
    return report.compute(
        run.events, run.facts, run.input_record, run.problems, run.answers, rows, time.monotonic
    )


@pytest.fixture(scope="module")
def run() -> BuiltRun:
    return run_builders.make(SCENARIO)


@pytest.fixture(scope="module")
def page(run: BuiltRun) -> str:
    return report_html.render(figures(run), run.events)


class Nesting(HTMLParser):
    """Follows open and closed elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed(page: str) -> None:
    nesting = Nesting()
    nesting.feed(page)
    assert nesting.open == []


def test_the_page_needs_nothing_from_outside(page: str) -> None:
    assert not re.search(r"<(script|link|img|iframe)|@import|url\(|(src|href)=", page)


def test_rows_stand_in_order_of_priority(page: str) -> None:
    picture = page[page.index("<svg") : page.index("</svg>")]
    shown = re.findall(r'class="name"[^>]*>([^<]*)<title>', picture)
    assert shown == ["top &amp; &lt;b&gt;", "middle", "odd", "safe", "low"]


def test_names_are_escaped_everywhere(page: str) -> None:
    assert "top & <b>" not in page


def test_every_outage_return_and_plan_has_a_title(page: str) -> None:
    assert "middle: unavailable from 1.8\u00a0s to" in page
    assert "127.0.0.3 returned at 10.0\u00a0s" in page
    assert "Plan 1 at 10.5\u00a0s brings back" in page


def test_the_picture_has_a_row_for_each_state(page: str) -> None:
    assert page.count('<rect class="available"') == len(PRIORITIES)
    assert page.count('<rect class="unavailable"') == 3
    assert page.count('<line class="returned"') == 2
    assert page.count('<line class="kill"') == 1


def test_bars_lie_within_the_picture(page: str) -> None:
    for x, width in re.findall(r'class="unavailable" x="([\d.]+)" y="\d+" width="([\d.]+)"', page):
        assert 232 <= float(x) <= float(x) + float(width) <= 1020.5


def test_the_story_admits_wrong_rows_missing_quotas_and_queries_that_stay_away() -> None:
    run = run_builders.make(replace(SCENARIO, returns=()))
    facts = replace(run.facts, quota_enforced=False)
    told = figures(replace(run, facts=facts), {**RIGHT, "wrong": 3})
    assert report_text.headline(told) == "2 of 3 nodes lost. Nothing came back."
    story = report_text.story(told)
    assert "Of 1,234 expected output rows: 3 wrong." in story
    assert "CPU quotas were not enforced" in story
    assert "Of the 3 that it hit" in story
    page = report_html.render(told, run.events)
    assert 'class="sum never"' in page
    assert 'class="tile bad"' in page


def test_a_run_in_which_nothing_went_down_can_be_shown() -> None:
    run = run_builders.make(replace(SCENARIO, priorities={"safe": 1.0}, killed=1))
    told = figures(run)
    assert report_text.headline(told) == "1 of 3 nodes lost. No query went down."
    assert "This run made no recovery plan." in report_html.render(told, run.events)


def with_outages(figures: dict[str, Any], **seconds: float) -> dict[str, Any]:
    """The same with queries of these names that were unavailable so long from 2 s on, each back."""
    queries = {
        name: {
            **figures["queries"]["safe"],
            "survived": name == "survivor",
            "unavailable": [[2.0, 2.0 + length]],
            "back_at": 2.0 + length,
        }
        for name, length in seconds.items()
    }
    return {**figures, "queries": queries}


def test_headlines_leave_out_interruptions_that_are_shorter_than_an_epoch(run: BuiltRun) -> None:
    told = figures(run)
    assert told["epoch_seconds"] == pytest.approx(1.0)
    brief = with_outages(told, brief=0.3, long=9.0, longer=20.0, survivor=0.4)
    assert report_text.headline(brief) == (
        "2 of 3 nodes lost. First query back after 11.0\u00a0s, the last after 22.0\u00a0s."
    )
    assert "ran on without interruption" in report_text.story(brief)
    assert (
        report_text.headline(with_outages(told, brief=0.3))
        == "2 of 3 nodes lost. No query went down."
    )
    assert "1 of them was interrupted" in report_text.story(with_outages(told, survivor=1.5))


def test_the_plans_say_what_they_leave_waiting_and_why() -> None:
    run = run_builders.make(
        replace(SCENARIO, cpu_quota=0.6, priorities={**PRIORITIES, "more": 1.5})
    )
    page = report_html.render(figures(run), run.events)
    assert "leaves waiting, and why" in page
    assert "no room now: " in page
    plan = {
        "skipped": [
            {"query": "late", "priority": 7.0, "reason": "no-capacity"},
            {"query": "slow", "priority": 3.0, "reason": "put-off"},
            {"query": "odd", "priority": 2.0, "reason": "no-capacity"},
        ],
        "why": "late waits.",
    }
    assert report_text.skipped(plan) == (
        "no room now: late (7), odd (2); no room on these nodes, even later: slow (3). late waits."
    )
    assert report_text.skipped({}) == ""


def test_the_machine_is_named_where_it_was_the_limit(run: BuiltRun) -> None:
    told = figures(run)
    assert report_text.machine_limit(told) == "Whether this machine was the limit was not measured."
    limit = {"seconds": 40.0, "of_seconds": 95.0, "intervals": [], "cores": 2, "other_cores": 0.94}
    said = report_text.machine_limit({**told, "machine_limit": limit})
    assert said == (
        "This machine was the limit for 40.0\u00a0s of the 95.0\u00a0s from the warm-up on: all "
        "its CPU was used, and what ran waited for it, while other programs used 0.9 of 2 cores."
    )
    alone = report_text.machine_limit({**told, "machine_limit": {**limit, "other_cores": 0.01}})
    assert alone.endswith("and what ran waited for it.")
    never = report_text.machine_limit({**told, "machine_limit": {**limit, "seconds": 0}})
    assert never == "This machine was never the limit in the 95.0\u00a0s from the warm-up on."
    earlier = {name: value for name, value in told.items() if name != "machine_limit"}
    assert report_text.machine_limit(earlier) == ""
    assert said.split(":")[0] in report_text.story({**told, "machine_limit": limit})


def test_node_names_are_shortened_by_what_they_share() -> None:
    assert report_text.short_names(["127.0.0.4", "127.0.0.11"]) == {
        "127.0.0.4": ".4",
        "127.0.0.11": ".11",
    }
    assert report_text.short_names(["ant", "bee"]) == {"ant": "ant", "bee": "bee"}


@pytest.mark.parametrize(
    ("end", "expected"),
    [(60.0, [-20, -10, 0, 10, 20, 30, 40, 50, 60]), (5.0, [-20, -18, -16, -14, -12, -10])],
)
def test_ticks_are_round_and_include_zero(end: float, expected: list[float]) -> None:
    found = time_axis.ticks(TimeScale(-20.0, end, 0.0, 100.0))
    assert found[: len(expected)] == expected
    assert 0 in found


def test_labels_that_would_touch_are_left_out() -> None:
    assert time_axis.spread([(10, "aa"), (15, "bb"), (40, "cc")], 6.0) == [(10, "aa"), (40, "cc")]
