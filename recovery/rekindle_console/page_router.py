"""From an address to its page: data is read, summed up, and rendered.

    address ──► reader ──► summaries ──► values of the page ──► fragment

One thread makes them, one after the other, and works only for what somebody looks at.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from rekindle.coordination import query_explanation
from rekindle.coordination.application_status import Phase
from rekindle.coordination.coordination_state import CoordinationState
from rekindle.coordination.query_explanation import Explanation
from rekindle.model.errors import RekindleError
from rekindle_console import application_summaries, html_rendering
from rekindle_console.application_page import application_page
from rekindle_console.application_summaries import Summaries, Summary, view_of
from rekindle_console.console_questions import ConsoleAnswer, ConsoleQuestion, portable
from rekindle_console.console_reader import ApplicationRecord, Reader
from rekindle_console.forecast_page import forecast_page, unsteady
from rekindle_console.incident_page import incident_page
from rekindle_console.overview_page import overview
from rekindle_console.page_addresses import Address, PageKind, link
from rekindle_console.query_page import query_page
from rekindle_console.question_process import QuestionProcess

DIGEST_LENGTH = 16
EXPLANATION_SECONDS = 5.0
EXPLANATION_SECONDS_MAX = 60.0
FORECAST_SECONDS = 60.0
FORECAST_SECONDS_MAX = 900.0


@dataclass(frozen=True, slots=True)
class Made:
    """A page: the status of the answer, and `awaits`, the question that is being worked out."""

    title: str
    fragment: str
    status: int = 200
    awaits: str = ""

    @property
    def digest(self) -> str:
        """Tells it from other ones."""
        return hashlib.sha256(self.fragment.encode()).hexdigest()[:DIGEST_LENGTH]


@dataclass(frozen=True, slots=True)
class PlainPage:
    """A page that only says something."""

    title: str
    text: str
    up: str


@dataclass(slots=True)
class Pages:
    """`rest` is called where much is worked at once, to leave time for others."""

    reader: Reader
    rest: Callable[[], None] = lambda: None
    explanations: QuestionProcess = field(
        default_factory=lambda: QuestionProcess(EXPLANATION_SECONDS, EXPLANATION_SECONDS_MAX)
    )
    forecasts: QuestionProcess = field(
        default_factory=lambda: QuestionProcess(FORECAST_SECONDS, FORECAST_SECONDS_MAX)
    )
    summaries: Summaries = field(default_factory=lambda: Summaries(time.monotonic))

    def make(self, address: Address, now: float) -> Made:
        """The page at that moment (seconds since 1970)."""
        try:
            records = self.reader.applications()
            if address.kind is PageKind.OVERVIEW:
                found = self.summaries.all(records, now, self.rest)
                page = overview(address, self.reader.process(), found, now)
                return Made(page.title, html_rendering.fragment("overview", page, address))
            record = next((item for item in records if item.name == address.application), None)
            if record is None:
                text = "No application of that name is in the store."
                return self.missing(address, address.application, text)
            return self._about(address, record, now)
        except RekindleError as error:
            return self._message(address, "It cannot be read now.", str(error), 503)

    def missing(self, address: Address, title: str, text: str) -> Made:
        """The page in the place of one that there is not."""
        return self._message(address, title, text, 404)

    def close(self) -> None:
        """End what is being worked out."""
        self.explanations.close()
        self.forecasts.close()

    def _about(self, address: Address, record: ApplicationRecord, now: float) -> Made:
        summary = self.summaries.of(record, now)
        state = (
            application_summaries.state_of(record, now, time.monotonic) if summary.counts else None
        )
        match address.kind:
            case PageKind.QUERY:
                return self._query(address, summary, state, now)
            case PageKind.INCIDENT:
                return self._incident(address, record, state, now)
            case PageKind.FORECAST:
                return self._forecast(address, summary, state, now)
        page = application_page(
            address,
            summary,
            state,
            self.reader.plans(record.name),
            self.reader.incidents(record.name),
            now,
        )
        title = f"{record.name}: {page.title}"
        return Made(title, html_rendering.fragment("application", page, address))

    def _query(
        self, address: Address, summary: Summary, state: CoordinationState | None, now: float
    ) -> Made:
        query = next((q for q in summary.standing.queries if q.name == address.query), None)
        if query is None:
            return self.missing(address, address.query, "The application has no such query.")
        key = link(address)
        if query.phase is Phase.WAITING:
            answer = self.explanations.ask(
                key,
                (summary.record.case, summary.record.reading),
                partial(_question, "explanation", summary.record, now, address.query),
            )
            found, trouble = (None, "") if answer is None else (answer.explanation, answer.trouble)
        else:
            found, trouble = _explained(summary.record, address.query, now), ""
        page = query_page(address, summary, state, found, trouble, now)
        if page is None:
            return self.missing(address, address.query, "The application has no such query.")
        shown = html_rendering.fragment("query", page, address)
        return Made(page.title, shown, awaits=key if page.pending else "")

    def _incident(
        self,
        address: Address,
        record: ApplicationRecord,
        state: CoordinationState | None,
        now: float,
    ) -> Made:
        partitions = 0 if state is None else len(state.partitions)
        page = incident_page(address, self.reader.incidents(record.name), partitions, now)
        if page is None:
            text = "Nobody has recorded an incident of that number."
            return self.missing(address, f"Incident {address.incident}", text)
        return Made(page.title, html_rendering.fragment("incident", page, address))

    def _forecast(
        self, address: Address, summary: Summary, state: CoordinationState | None, now: float
    ) -> Made:
        answer: ConsoleAnswer | None = None
        if state is not None and not unsteady(summary, state):
            basis = (dict(state.placement), dict(state.priorities), frozenset(state.nodes))
            ask = partial(_question, "forecast", summary.record, now, "")
            answer = self.forecasts.ask(link(address), basis, ask)
        page = forecast_page(summary, state, answer, now)
        shown = html_rendering.fragment("forecast", page, address)
        title = f"{summary.name}: {page.title}"
        return Made(title, shown, awaits=link(address) if page.pending else "")

    def _message(self, address: Address, title: str, text: str, status: int) -> Made:
        up = link(Address(PageKind.APPLICATION, address.application))
        page = PlainPage(title, text, up if address.kind not in TOP else "")
        return Made(title, html_rendering.fragment("message", page, address), status)


TOP = (PageKind.OVERVIEW, PageKind.APPLICATION)


def _question(kind: str, record: ApplicationRecord, now: float, query: str) -> ConsoleQuestion:
    view = view_of(record)
    assert view is not None, "only what has been reported is asked about"
    if kind == "forecast":
        return ConsoleQuestion("forecast", portable(view), now)
    return ConsoleQuestion("explanation", portable(view), now, query)


def _explained(record: ApplicationRecord, query: str, now: float) -> Explanation | None:
    """Of a query that does not wait, which is said at once."""
    view = view_of(record)
    if view is None:
        return None
    return query_explanation.explain(view, query, now, clock=time.monotonic)
