"""Answers that take too long for the deciding thread: explanations and simulations.

    question ──► a process of its own, with a low priority ──► answer

`question_process` starts `python -m rekindle_console.console_questions` for each question, writes
it to the standard input, and reads the answer from the standard output. So the planner's work takes
nothing from the thread that decides, and ends with the process that asked. Messages are JSON.
"""

import os
import resource
import sys
import time
from dataclasses import replace
from typing import Literal

import msgspec

from rekindle.coordination import application_status, query_explanation
from rekindle.coordination.application_status import ApplicationView
from rekindle.coordination.coordination_state import CoordinationState
from rekindle.coordination.query_explanation import Explanation
from rekindle.forecast import outage_forecasts
from rekindle.forecast.failure_simulation import Model, Uniform
from rekindle.forecast.outage_forecasts import DomainForecast
from rekindle.model.errors import RekindleError

CPU_SECONDS_MAX = 60
# Somebody waits for an explanation, so on a busy machine it still gets a tenth of what others get.
NICE = {"explanation": 10, "forecast": 19}
# Another rehearsal is made while all of them together take less than this.
REHEARSAL_SECONDS = 20.0
REHEARSALS_MAX = 5
# As `rekindle forecast` assumes: what was measured of virtual machines on EC2.
ARRIVALS = Uniform(120.0, 360.0)
SOLVER_SECONDS = 0.2


class ConsoleQuestion(msgspec.Struct, frozen=True):
    """`query` is what is to be explained; `now` in seconds since 1970."""

    kind: Literal["explanation", "forecast"]
    view: ApplicationView
    now: float
    query: str = ""


class ConsoleAnswer(msgspec.Struct, frozen=True):
    """What was asked for, or why there is none (`trouble`); `at` in seconds since 1970."""

    at: float
    explanation: Explanation | None = None
    domains: tuple[DomainForecast, ...] = ()
    rehearsals: int = 0
    trouble: str = ""


def portable(view: ApplicationView) -> ApplicationView:
    """A view as it can be sent: what follows from the rest is left out."""
    return replace(view, case=replace(view.case, state=None, taken={}))


def answer(question: ConsoleQuestion) -> ConsoleAnswer:
    """The answer to a question. Takes seconds."""
    try:
        if question.kind == "explanation":
            found = query_explanation.explain(
                question.view, question.query, question.now, clock=time.monotonic
            )
            return ConsoleAnswer(question.now, explanation=found)
        return _forecast(question)
    except RekindleError as error:
        return ConsoleAnswer(question.now, trouble=str(error))


def _forecast(question: ConsoleQuestion) -> ConsoleAnswer:
    """As many rehearsals as there is time for, at least one."""
    state = application_status.case_of(question.view, question.now, clock=time.monotonic).state
    assert state is not None
    quick = replace(state.policy, solver="best-density", solver_budget_seconds=SOLVER_SECONDS)
    state = replace(state, policy=quick)
    began = time.process_time()
    found = _rehearsed(state, 1)
    seconds = max(0.001, time.process_time() - began)
    more = min(REHEARSALS_MAX, int(REHEARSAL_SECONDS / seconds))
    if more > 1:
        found = _rehearsed(state, more)
    return ConsoleAnswer(question.now, domains=found, rehearsals=max(1, more))


def _rehearsed(state: CoordinationState, count: int) -> tuple[DomainForecast, ...]:
    seeds = range(1, count + 1)
    return outage_forecasts.forecast(state, ARRIVALS, Model(), seeds=seeds, clock=time.monotonic)


def main() -> None:
    """Answers the question on the standard input, and ends."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))
    # Solvers print to the standard output from C++: only the answer may go there.
    out = os.dup(1)
    os.dup2(2, 1)
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=ConsoleQuestion)
    os.nice(NICE[question.kind])
    with os.fdopen(out, "wb") as file:
        file.write(msgspec.json.encode(answer(question)))


if __name__ == "__main__":
    main()
