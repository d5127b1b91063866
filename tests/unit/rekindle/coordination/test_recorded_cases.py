"""Records `coordination` of other releases: what was written before is read, and what comes later.

`tests/golden/coordination` has one of each form that a release has written, and the release before
the newest form reads that as well.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from application_world import COSTS, Desk, running

from rekindle.coordination import session
from rekindle.model.errors import InputError
from rekindle.protocol import Orders, PlanOrder, PriorityOverride

RECORDS = Path(__file__).parents[3] / "golden" / "coordination"
NEWEST = RECORDS / "version-1.json"


def in_an_incident() -> Desk:
    """What the records are of: two nodes are lost, and the plan for that is on its way."""
    desk = running()
    override = PriorityOverride(priority=10)
    desk.reading = replace(desk.reading, orders=Orders(priorities={"busiest": override}))
    for node in ("n1", "n2"):
        del desk.nodes[node]
    desk.report()
    desk.decide(obey=False)
    return desk


def go_on(desk: Desk, record: bytes) -> None:
    """A coordinator that finds the record goes on until everything runs."""
    desk.case = session.from_record(record, "coordination")
    sent = desk.case.sequence
    desk.directive = sent  # it could not place anything
    desk.plan_epoch = 2
    desk.report()
    plan = next(item for item in desk.decide().directives if isinstance(item.order, PlanOrder))
    assert plan.sequence > sent
    desk.settle()
    assert set(desk.placement) == set(COSTS)


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_an_incident_in_a_record_of_any_release_is_gone_on_with(path: Path) -> None:
    desk = in_an_incident()
    found = session.from_record(path.read_bytes(), path.name)
    written = desk.restart()
    assert replace(found, policy="") == replace(written, policy="")
    go_on(desk, path.read_bytes())


def test_what_is_written_now_is_what_the_newest_record_has() -> None:
    """A new field wants a record of its own here, with what the release before makes of it."""
    written = json.loads(session.to_record(in_an_incident().case))
    newest = json.loads(NEWEST.read_bytes())
    for record in (written, newest):
        record["kept"]["catching_up"].sort()
    assert written == newest


CHANGES: dict[str, Callable[[Any], object]] = {
    "a field": lambda record: record.update(future={"more": 1}),
    "a field of what is kept": lambda record: record["kept"].update(future=1),
    "a reason of a plan": lambda record: record["kept"].update(
        due={"at": 1.0, "reason": "gpu-lost"}
    ),
    "a reason of a request": lambda record: record.update(
        requests={"1-nodes-1": {"what": "nodes", "reason": "gpu-lost", "count": 1}}
    ),
    "a request": lambda record: record.update(
        requests={"1-disks-1": {"what": "disks", "reason": "node-back"}}
    ),
    "a status of a node": lambda record: record["kept"]["nodes"]["n3"].update(status="draining"),
    "a kind of incident": lambda record: record["kept"]["incident"].update(kind="planned"),
    "a driver": lambda record: record.update(driver="moving"),
    "a resumption": lambda record: record.update(resumption="halfway"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_newer_release_has_added_leaves_a_record_readable(
    change: Callable[[Any], object],
) -> None:
    record = json.loads(NEWEST.read_bytes())
    change(record)
    go_on(in_an_incident(), json.dumps(record).encode())


def test_words_that_are_only_carried_are_written_as_they_were_read() -> None:
    record = json.loads(NEWEST.read_bytes())
    record["kept"]["due"] = {"at": 1.0, "reason": "gpu-lost"}
    found = session.from_record(json.dumps(record).encode(), "coordination")
    assert found.kept is not None
    assert found.kept.due is not None
    assert found.kept.due.reason.meaning == "a word of a newer release"
    assert json.loads(session.to_record(found))["kept"]["due"]["reason"] == "gpu-lost"


def test_a_later_version_is_refused_with_what_to_do() -> None:
    record = json.loads(NEWEST.read_bytes()) | {"version": 2, "kept": "in another form"}
    with pytest.raises(InputError, match="version 2; this release reads 1; run the release"):
        session.from_record(json.dumps(record).encode(), "coordination")
