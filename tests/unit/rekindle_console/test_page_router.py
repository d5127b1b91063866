"""The console's pages, from values: what they show, that no name is markup, their limits."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from console_world import (
    MARKUP,
    NOW,
    Values,
    address,
    healthy,
    many_queries,
    page,
    record_of,
    short,
    unreported,
    with_nodes,
)
from standing_world import NODES, Desk, resumed, running, short_of_capacity

from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.coordination_state import active
from rekindle.coordination.incident_history import ProgressPoint
from rekindle.model.errors import RunError
from rekindle.model.topology import Topology
from rekindle.protocol import Acknowledgement, Directive, PlanOrder
from rekindle_console import application_page, html_rendering, overview_page
from rekindle_console.application_summaries import Summaries
from rekindle_console.console_questions import ConsoleAnswer, ConsoleQuestion, answer
from rekindle_console.console_reader import PastIncident, PastPlan, PastQuery, PlanRecord
from rekindle_console.forecast_page import domain_rows
from rekindle_console.question_process import QuestionProcess

PAGE_BYTES_MAX = 300_000


class Reader(HTMLParser):
    """The text of a page, its tags, and the rows of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.parts: list[str] = []
        self.in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attributes if name == "href"]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self.in_cell &= tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.parts.append(data)
        if self.in_cell:
            self.rows[-1][-1] += " ".join(data.split())

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.parts).split())


class Answered(QuestionProcess):
    """Answers at once, in this process."""

    def __init__(self) -> None:
        super().__init__(0.0, 0.0)
        self.asked: list[ConsoleQuestion] = []

    def ask(self, key: str, basis: object, make: object) -> ConsoleAnswer:
        del key, basis
        assert callable(make)
        question = make()
        self.asked.append(question)
        return answer(question)


class Unanswered(Answered):
    """Has no answer yet."""

    def ask(self, key: str, basis: object, make: object) -> None:  # type: ignore[override]
        del key, basis, make


def read(values: Values, target: str = "/", **fields: object) -> Reader:
    made = page(values, target, **fields)
    assert made.status == 200
    return Reader(made.fragment)


def rows(found: Reader, first: str) -> list[list[str]]:
    return [row for row in found.rows if row and row[0].startswith(first)]


def test_the_overview_has_every_application_what_needs_a_look_first() -> None:
    values = Values([healthy("a/fine"), unreported("b/new"), short("c/short")])
    found = read(values)
    assert [row[0] for row in found.rows[1:]] == ["c/short", "a/fine", "b/new"]
    assert "1 of 3 applications is recovering." in found.text
    assert "no-capacity" in rows(found, "c/short")[0][-1]
    assert rows(found, "b/new")[0][1] == "not reported"
    assert "applications/c/short" in " ".join(found.links)


def test_the_overview_says_when_nothing_has_reported_and_when_all_run() -> None:
    assert "No application has reported yet." in read(Values()).text
    assert "The application runs." in read(Values([healthy()])).text


def test_an_application_shows_its_queries_by_priority_with_lag() -> None:
    found = read(Values([healthy()]), "/applications/team/flights")
    table = [row for row in found.rows if row and row[0] in ("ranking", "busiest")]
    assert [(row[0], row[1], row[2], row[4]) for row in table] == [
        ("ranking", "9", "live", "2.5 s"),
        ("busiest", "4", "live", "1.5 s"),
    ]
    assert "All 2 queries run." in found.text


def test_goals_are_on_the_pages_of_application_and_query_where_there_are_some() -> None:
    desk = running()
    desk.report(lag_goals={"ranking": 10.0}, beyond_goal_seconds={"ranking": 37.5})
    desk.decide()
    values = Values([record_of(desk, "team/flights")])
    found = read(values, "/applications/team/flights")
    assert {row[0]: row[-1] for row in found.rows if row and row[0] in ("ranking", "busiest")} == {
        "ranking": "37.5 s beyond 10.0 s",
        "busiest": "",
    }
    assert "37.5 s beyond lag goals in all, weighted by priority" in found.text
    query = read(values, "/applications/team/flights/query?name=ranking")
    assert "37.5 s lag above its goal of 10.0 s, in all" in query.text
    without = read(Values([healthy()]), "/applications/team/flights")
    assert "goal" not in without.text


def test_a_node_that_is_announced_to_go_is_shown_and_nothing_counts_as_lost() -> None:
    desk = running()
    notices = {"n1": LossNotice("spot", desk.now + 60.0)}
    desk.reading = replace(desk.reading, notices=notices)
    desk.decide()
    found = read(Values([record_of(desk, "team/flights")]), "/applications/team/flights")
    assert "1 node announced to go. 2 of 2 queries run." in found.text
    assert re.search(r"n1 is announced to go, .* \(spot\)\.", found.text), found.text
    assert "everything" not in found.text


def test_a_driver_that_started_again_has_lost_no_node() -> None:
    found = read(Values([record_of(resumed(), "team/flights")]), "/applications/team/flights")
    assert "A driver started again. 0 of 2 queries run." in found.text
    assert "everything" not in found.text


def test_an_open_incident_shows_nodes_plans_and_who_waits_for_what_and_why() -> None:
    desk = short_of_capacity()
    assert desk.plan is not None
    values = Values([record_of(desk, "team/short")])
    done = Acknowledgement(
        sequence=desk.plan.sequence, generation=1, outcome="done", epoch=1, plan_epoch=2
    )
    values.made_plans["team/short"] = [PlanRecord(desk.plan, done)]
    found = read(values, "/applications/team/short")
    assert "3 nodes lost. 1 of 2 queries run." in found.text
    assert "Plan 2 of incident 1" in found.text
    (waits,) = [row for row in found.rows if row and row[-1] == "why"]
    assert waits[:4] == ["busiest", "4", "2 partitions", "counts/0, counts/1"]
    assert "no-capacity" in found.text
    states = [row[2] for row in found.rows if row and row[0] in NODES and row[1] == "–"]
    assert states == ["lost", "lost", "lost", "up"]


def test_a_query_that_waits_is_explained_as_the_command_does() -> None:
    desk = short_of_capacity()
    values = Values([record_of(desk, "team/short")])
    asker = Answered()
    found = read(values, "/applications/team/short/query?name=busiest", explanations=asker)
    said = desk.explain("busiest").sentences
    assert said[0] in found.text
    assert "more nodes" in found.text
    assert rows(found, "counts/0")[0][:2] == ["counts/0", "60 %"]
    assert [question.query for question in asker.asked] == ["busiest"]


def test_a_query_that_does_not_wait_is_explained_at_once() -> None:
    found = read(Values([healthy()]), "/applications/team/flights/query?name=ranking")
    assert "ranking is live: nothing is missing." in found.text


def test_a_page_says_that_an_explanation_is_being_worked_out() -> None:
    target = "/applications/team/short/query?name=busiest"
    made = page(Values([short()]), target, explanations=Unanswered())
    assert "It is being worked out." in made.fragment
    assert made.awaits


def test_failure_domains_have_the_share_that_stops_at_once_and_times_once_rehearsed() -> None:
    target = "/applications/team/flights/forecast"
    pending = page(Values([healthy()]), target, forecasts=Unanswered())
    assert pending.awaits
    assert "is being rehearsed" in pending.fragment
    found = read(Values([healthy()]), target, forecasts=Answered())
    (row,) = rows(found, "n1")
    assert row[2].endswith(" %")
    assert row[-1].endswith("s")
    assert "Each loss was rehearsed 5 times" in found.text


def test_a_query_that_waits_does_not_go_on_without_a_domain() -> None:
    state = short().case.state
    assert state is not None
    running = {query.rpartition("/")[0] for query in active(state)}
    found = domain_rows(state, None)
    assert "busiest" not in running
    assert found
    assert all("busiest" not in row.survives for row in found)


def test_no_forecast_is_made_in_the_middle_of_an_incident() -> None:
    asker = Answered()
    found = read(Values([short()]), "/applications/team/short/forecast", forecasts=asker)
    assert "in the middle of incident 1" in found.text
    assert asker.asked == []


def past() -> PastIncident:
    return PastIncident(
        number=7,
        outcome="Recovered",
        source="Recovery team/flights-7",
        kind="Correlated",
        began_at=NOW - 200,
        ended_at=NOW - 100,
        lost=("n1", "n2"),
        plans=(PastPlan(3, "node-back", "Plan 3 brings back busiest.", NOW - 150, "done"),),
        queries=(PastQuery("busiest", 4.0, NOW - 200, NOW - 180, NOW - 150),),
        points=(ProgressPoint(NOW - 200, 2, 1, 0, 2), ProgressPoint(NOW - 150, 3, 4, 1, 3)),
    )


def test_a_past_incident_shows_what_is_recorded_of_it() -> None:
    values = Values([healthy()], past={"team/flights": [past()]})
    (row,) = rows(read(values, "/applications/team/flights"), "7")
    assert row[1] == "correlated"
    assert row[3:] == ["1 min 40 s", "2 nodes", "1", "Recovered"]
    found = read(values, "/applications/team/flights/incident?number=7")
    assert "Incident 7: 2 nodes lost, over after 1 min 40 s." in found.text
    assert "Recovery team/flights-7" in found.text
    assert rows(found, "busiest")[0][-2] == "50.0 s"
    assert "polygon" in found.tags


def test_a_past_incident_of_which_little_is_recorded_shows_that() -> None:
    values = Values([healthy()], past={"team/flights": [PastIncident(1, "over", "plans")]})
    found = read(values, "/applications/team/flights/incident?number=1")
    assert "polygon" not in found.tags
    assert "As recorded: plans." in found.text


@pytest.mark.parametrize(
    "target",
    [
        "/applications/team/none",
        "/applications/team/flights/query?name=none",
        "/applications/team/flights/incident?number=9",
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(target: str) -> None:
    made = page(Values([healthy()]), target)
    assert made.status == 404
    assert "<h1>" in made.fragment


def test_trouble_with_reading_is_a_page_that_says_so() -> None:
    trouble = RunError(where="store", what="does not answer", remedy="wait")
    made = page(Values(trouble=trouble), "/applications/team/flights")
    assert (made.status, "store: does not answer; wait" in made.fragment) == (503, True)


def test_an_application_that_is_stopped_shows_the_trouble_and_its_last_standing() -> None:
    record = replace(healthy(), trouble="record x: is no JSON; replace it")
    found = read(Values([record]), "/applications/team/flights")
    assert "bad-record record x: is no JSON; replace it" in found.text
    assert "All 2 queries run." in found.text
    broken = replace(unreported("team/new"), trouble="record x: is no JSON; replace it")
    assert "Its records cannot be read." in read(Values([broken]), "/applications/team/new").text


def hostile() -> Values:
    """Everything that others name has markup in it."""
    record = with_nodes(many_queries(4, text=MARKUP), [f"{MARKUP}-node"])
    incident = replace(
        past(),
        lost=(MARKUP,),
        domains=MARKUP,
        source=MARKUP,
        plans=(PastPlan(1, MARKUP, MARKUP, NOW, MARKUP),),
        queries=(PastQuery(MARKUP, 1.0, text=MARKUP),),
    )
    return Values([replace(record, trouble=MARKUP)], past={"team/large": [incident]})


@pytest.mark.parametrize(
    "target",
    [
        "/?find=%3Cscript%3E",
        "/applications/team/large",
        "/applications/team/large?find=%3Cscript%3E&state=live",
        "/applications/team/large/query?name=%3Cscript%3Ealert(1)%3C/script%3E%22'%26-0000",
        "/applications/team/large/query?name=%3Cscript%3E",
        "/applications/team/large/incident?number=7",
        "/applications/team/large/forecast",
    ],
)
def test_names_with_markup_in_them_are_text(target: str) -> None:
    made = page(hostile(), target, forecasts=Answered(), explanations=Answered())
    whole = html_rendering.whole(made.fragment, made.title, address(target), "news", "now")
    found = Reader(whole)
    assert found.tags.count("script") == 1
    assert "<script>alert" not in whole
    assert "<script>" in found.text or "forecast" in target or "/?find" in target


def test_a_thousand_queries_are_shown_in_parts_the_most_important_first() -> None:
    values = Values([many_queries(1_000)])
    found = read(values, "/applications/team/large")
    queries = rows(found, "query-")
    assert len(queries) == application_page.QUERIES_MAX
    assert {row[1] for row in queries} == {"10"}
    assert "1 to 50 of 1,000 queries" in found.text
    last = rows(read(values, "/applications/team/large?page=20"), "query-")
    assert {row[1] for row in last} == {"1"}
    beyond = rows(read(values, "/applications/team/large?page=99"), "query-")
    assert beyond == last


def test_a_list_can_be_narrowed_to_a_state_and_to_a_part_of_a_name() -> None:
    values = Values([many_queries(1_000)])
    found = read(values, "/applications/team/large?state=live&find=query-01")
    assert "1 to 50 of 100 queries" in found.text
    assert {row[2] for row in rows(found, "query-")} == {"live"}
    assert all(row[0].startswith("query-01") for row in rows(found, "query-"))
    assert rows(read(values, "/applications/team/large?state=stopped"), "query-") == []


def test_a_page_has_a_limit_whatever_others_have_written() -> None:
    record = many_queries(2_000, text="q" * 190)
    record = with_nodes(record, [f"{'n' * 190}-{index:04}" for index in range(1_000)])
    record = replace(record, trouble="x" * 100_000)
    values = Values([record, *(healthy(f"team/a{index:04}") for index in range(200))])
    for target in ("/", "/applications/team/large"):
        assert len(page(values, target).fragment) < PAGE_BYTES_MAX
    assert len(read(values).rows) == 1 + overview_page.ROWS_MAX


def test_a_summary_is_made_again_only_when_records_change_or_a_minute_has_passed() -> None:
    summaries, record = Summaries(float), healthy()
    first = summaries.of(record, NOW)
    assert summaries.of(record, NOW + 1) is first
    assert summaries.of(replace(record, reading=replace(record.reading)), NOW + 2) is not first
    again = summaries.of(record, NOW + 3)
    assert summaries.of(record, NOW + 200) is not again


def test_a_page_without_news_stays_the_same() -> None:
    values = Values([short()])
    made = [page(values, "/applications/team/short") for _ in range(2)]
    assert made[0].digest == made[1].digest
    values.records[0] = healthy("team/short")
    assert page(values, "/applications/team/short").digest != made[0].digest


def test_a_plan_for_another_incident_is_not_among_those_of_the_open_one() -> None:
    desk: Desk = short_of_capacity()
    assert desk.plan is not None
    order = PlanOrder(query_partitions=(), placement={}, builds_on=0, incident=44)
    other = Directive(
        sequence=9, after=8, generation=1, plan_epoch=9, reason="x", text="Other.", order=order
    )
    values = Values([record_of(desk, "team/short")])
    values.made_plans["team/short"] = [PlanRecord(other), PlanRecord(desk.plan)]
    found = read(values, "/applications/team/short")
    assert "Other." not in found.text
    assert "Plan 2 of incident 1" in found.text


def test_an_application_without_queries_left_is_said_to_be_over() -> None:
    desk = running()
    desk.report(finished=True)
    desk.decide()
    found = read(Values([record_of(desk)]), "/applications/team/flights")
    assert "The run is over." in found.text
    assert isinstance(desk.reading.topology.topology, Topology)
