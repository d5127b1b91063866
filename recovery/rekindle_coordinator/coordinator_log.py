"""The log of a coordinator: its decisions and events, one JSON object per line.

    {"version": 1, "at": ..., "kind": "plan", "generation": 3, "application": "a/b", ...}

Lines of an application are those that a driver which plans by itself writes to its events, so that
both can be merged by `at` (seconds since 1970). Written only once the store has the decision.
"""

from typing import Any

from rekindle.coordination import Case, Decision
from rekindle.coordination.directives import NodeRequestOrder
from rekindle.coordination.instructions import Instruction, Plan, PublishPlan, RecordEvent, describe
from rekindle.model import plan_problem
from rekindle.protocol import Directive
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.json_lines import JsonLineLog


class Log(JsonLineLog):
    """The lines of `JsonLineLog`, and those of decisions."""

    __slots__ = ()

    def decided(self, place: Place, decision: Decision) -> None:
        """Append what a decision says and orders."""
        common = {"generation": decision.case.generation, "application": str(place)}
        for instruction in decision.instructions:
            told = _told(instruction, decision.case)
            if told is not None:
                kind, fields = told
                self.write(kind, **common, **fields)
        for request in decision.requested:
            self.write(f"{request.what}-requested", **common, **_asked(request))
        for directive in decision.directives:
            self.write("directive", **common, **_ordered(directive))


def _told(instruction: Instruction, case: Case) -> tuple[str, dict[str, Any]] | None:
    """Kind and fields; None for what shows in the directives, or in the driver's own events."""
    match instruction:
        case PublishPlan(plan):
            return "plan", _announced(plan, case)
        case RecordEvent(kind, reason, text, details):
            return kind, {"reason": str(reason), "text": text, "details": dict(details)}
    return None


def _asked(request: NodeRequestOrder) -> dict[str, Any]:
    if request.what == "driver":
        return {"reason": str(request.reason)}
    outside = list(request.outside_domains)
    return {"count": request.count, "outside": outside, "reason": str(request.reason)}


def _announced(plan: Plan, case: Case) -> dict[str, Any]:
    assert case.state is not None
    return {
        "plan_epoch": plan.plan_epoch,
        "n": plan.plan_epoch,
        "queries": list(plan.query_partitions),
        "placement": dict(plan.placement),
        "priority_sum": plan.answer.priority_sum,
        "priorities": dict(case.state.priorities),
        "reason": str(plan.reason),
        "text": describe(plan),
        "problem": plan_problem.to_record(plan.problem),
        "answer": plan_problem.answer_to_record(plan.answer),
    }


def _ordered(directive: Directive) -> dict[str, Any]:
    order = type(directive.order).__struct_config__.tag
    return {
        "sequence": directive.sequence,
        "plan_epoch": directive.plan_epoch,
        "order": order,
        "reason": directive.reason,
        "text": directive.text,
    }
