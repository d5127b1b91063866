"""What the cluster tells of an incident, and whether it is what has happened.

`loss_scenarios` asks. What is not true is said in words by a `RunError`.
"""

import math
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from rekindle.model.errors import RunError
from scenarios.deployment import NAMESPACE
from scenarios.run_recorder import Record
from scenarios.scenario_run import ScenarioRun, is_over

Object = Mapping[str, Any]
LOOK = "see recoveries.json, records.jsonl and the logs of pods in the scenario's folder"


def check(claim: str, holds: object) -> None:
    """Raises `RunError` when a claim does not hold."""
    if not holds:
        raise RunError(where="the scenario", what=f"it is not true that {claim}", remedy=LOOK)


def check_correlated(stage: ScenarioRun, *, lost: Collection[str]) -> None:
    """One Recovery of a correlated failure, which tells all of it; ordinary Spark has none."""
    if not stage.site.is_protected:
        return
    check_told(only(stage), lost=lost, kind="Correlated")


def only(stage: ScenarioRun) -> Object:
    """The one Recovery that there is. Raises `RunError` where there is none, or another one."""
    return _stories(stage, 1)[0]


def check_told(story: Object, *, lost: Collection[str], kind: str) -> None:
    """Just these nodes, the plans and their acknowledgements, every query, and the end."""
    status = story.get("status", {})
    queries, plans = status.get("queries", []), status.get("plans", [])
    _compare(
        story,
        told={
            "kind": status.get("kind"),
            "lost nodes": sorted(one["name"] for one in status.get("lostNodes", ())),
            "phase": status.get("phase"),
            "plans": bool(plans) and all(plan.get("acknowledgedAt") for plan in plans),
            "queries": bool(queries)
            and all(one.get("backAt") for one in queries if one.get("lostAt")),
            "ended": is_over(story),
        },
        wanted={
            "kind": kind,
            "lost nodes": sorted(lost),
            "phase": "Recovered",
            "plans": True,
            "queries": True,
            "ended": True,
        },
    )


def check_announced(story: Object, *, lost: Collection[str]) -> None:
    """Just these nodes, announced before they were lost, and the end."""
    status = story.get("status", {})
    rows = status.get("announcedNodes", ())
    _compare(
        story,
        told={
            "announced nodes": sorted(one["name"] for one in rows if not one.get("withdrawn")),
            "lost nodes": sorted(one["name"] for one in status.get("lostNodes", ())),
            "phase": status.get("phase"),
        },
        wanted={
            "announced nodes": sorted(lost),
            "lost nodes": sorted(lost),
            "phase": "Recovered",
        },
    )


def check_untouched(stage: ScenarioRun) -> None:
    """So far queries have gone on, on the executors that they had: none was lost or planned for."""
    check("epochs have been committed", stage.since_failure("commit"))
    for kind in ("confirmed", "plan", "ack", "rolled-back", "query-stopped"):
        check(f"there is no record of the kind {kind}", not stage.since_failure(kind))


def check_planned_by_operator(stage: ScenarioRun) -> None:
    """The operator has made all plans, by what drivers had written to the store by then."""
    alone, led = _plans(stage)
    check("the operator has planned", led)
    check("the driver has not planned alone", not alone)


def check_planned_alone(stage: ScenarioRun) -> None:
    """The driver has planned alone, and been led again: no plan was made or carried out twice."""
    alone, led = _plans(stage)
    check("the driver has planned alone", alone)
    check("it was led again", stage.since_failure("led"))
    acknowledged = [one["plan_epoch"] for one in stage.since_failure("ack")]
    check("no plan was carried out twice", len(acknowledged) == len(set(acknowledged)))
    numbers = [one["plan_epoch"] for one in (*alone, *led)]
    check("no two plans have one number", len(numbers) == len(set(numbers)))
    planned = {query for one in alone for query in one["queries"]}
    again = sorted(planned.intersection(query for one in led for query in one["queries"]))
    check(f"the operator has not planned again for {', '.join(again)}", not again)


def check_told_late(story: Object, *, lost: Collection[str]) -> None:
    """Just these nodes, and the end, of losses that operators have only found when they came."""
    status = story.get("status", {})
    _compare(
        story,
        told={
            "lost nodes": sorted(one["name"] for one in status.get("lostNodes", ())),
            "phase": status.get("phase"),
            "ended": is_over(story),
        },
        wanted={"lost nodes": sorted(lost), "phase": "Recovered", "ended": True},
    )


def check_fenced(story: Object, stage: ScenarioRun, node: str) -> None:
    """The driver's node was fenced, and not before the cloud had marked its machine as off."""
    fenced = story["status"]["driver"].get("fencedAt")
    check("the driver's node was fenced", fenced)
    marked = [one["at"] for one in stage.since_failure("machine-off") if one["name"] == node]
    check(
        "its machine was marked as off before that",
        marked and datetime.fromisoformat(fenced).timestamp() >= math.floor(marked[0]),
    )


def check_nothing(stage: ScenarioRun) -> None:
    """No incident: nothing confirmed, no Recovery."""
    _stories(stage, 0)
    verdicts = stage.since_failure("verdict")
    check("no node was confirmed", all(one["verdict"] != "confirmed" for one in verdicts))


def check_suspicion(stage: ScenarioRun, *, silent: Collection[str]) -> None:
    """One Recovery of nodes that were silent, which is over: nothing was lost, and nothing done."""
    story = only(stage)
    status = story["status"]
    _compare(
        story,
        told={
            "kind": status["kind"],
            "silent nodes": sorted(one["name"] for one in status["lostNodes"]),
            "phase": status["phase"],
            "reason": status["reason"],
            "plans": status["plansTotal"],
            "nodes requested": status["nodesRequested"],
            "confirmed": any("confirmedAt" in one for one in status["lostNodes"]),
        },
        wanted={
            "kind": "Suspected",
            "silent nodes": sorted(silent),
            "phase": "Abandoned",
            "reason": "SuspicionCleared",
            "plans": 0,
            "nodes requested": 0,
            "confirmed": False,
        },
    )
    for kind in ("executor-deleted", "node-tainted", "plan"):
        check(f"there is no record of the kind {kind}", not stage.since_failure(kind))


def check_no_eviction(stage: ScenarioRun) -> None:
    """No pod of the application had to go for want of storage or memory."""
    events = stage.site.core.list_namespaced_event(NAMESPACE, field_selector="reason=Evicted")
    check("no pod was evicted", not events.items)


def _plans(stage: ScenarioRun) -> tuple[list[Record], list[Record]]:
    """Plans that the driver has made alone, and those of operators, whose log names the
    application in each."""
    plans = stage.since_failure("plan")
    return (
        [one for one in plans if "application" not in one],
        [one for one in plans if "application" in one],
    )


def _stories(stage: ScenarioRun, count: int) -> list[Object]:
    found = stage.recoveries()
    if len(found) != count:
        names = ", ".join(one["metadata"]["name"] for one in found) or "none"
        raise RunError(
            where="the Recoveries",
            what=f"are {len(found)} ({names}), where there should be {count}",
            remedy=LOOK,
        )
    return found


def _compare(story: Object, *, told: Object, wanted: Object) -> None:
    false = {name: value for name, value in told.items() if value != wanted[name]}
    if false:
        raise RunError(
            where=f"Recovery {story['metadata']['name']}",
            what=f"tells {false}, where it should tell { {name: wanted[name] for name in false} }",
            remedy=LOOK,
        )
