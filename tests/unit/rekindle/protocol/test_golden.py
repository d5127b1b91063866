"""Records of the coordination store as they were once written are read by what runs today."""

import json
from pathlib import Path

from rekindle import protocol
from rekindle.coordination import session
from rekindle.coordination.coordination_state import NodeStatus
from rekindle.coordination.session import Driver
from rekindle.model.incidents import IncidentKind
from rekindle.protocol import ProgressReport, SourceSeen, StatisticsReport

GOLDEN = Path(__file__).parents[3] / "golden" / "protocol"


def test_a_coordinators_case_is_read_as_it_was_meant() -> None:
    data = (GOLDEN / "coordination.json").read_bytes()
    case = session.from_record(data, "coordination")
    kept = case.kept
    assert kept is not None
    assert kept.incident is not None
    assert (case.generation, case.driver, case.paused) == (1, Driver.SILENT, False)
    assert kept.incident.kind is IncidentKind.CORRELATED
    lost = {name for name, view in kept.nodes.items() if view.status is NodeStatus.LOST}
    assert lost == {"n1", "n2"}
    assert [(request.what, request.count) for request in case.requests.values()] == [("nodes", 2)]
    assert session.from_record(session.to_record(case), "again") == case


def test_a_progress_report_is_read_as_it_was_meant() -> None:
    data = (GOLDEN / "progress.json").read_bytes()
    report = protocol.decode(data, ProgressReport, "progress")
    assert set(report.nodes) == {"n3", "n4"}
    silent = report.nodes["n3"]
    assert (silent.silent_seconds, silent.cluster_node) == (16.2, "node-c.example")
    assert report.resident == {"counts/1": "n3"}
    assert (report.buffering, report.finished, report.lags) == ("on", False, {"busiest": 2.5})
    assert report.moving == {"source/1": "n3"}
    assert (report.at, report.late_rows) == (1_700_000_000.5, {"counts": 12})
    assert report.stopped == {"ranking/0": "step tops: raised ValueError: bad"}
    assert report.suspected.keys() == {"counts/1"}
    assert silent.slow
    assert (report.epoch_seconds, report.store_away_at) == (0.75, 1_700_000_000.25)
    assert report.refused.keys() == {"StatisticsReport"}
    assert report.sources == {
        "orders": SourceSeen(waiting=1200, lag_seconds=3.5, away="Kafka cannot be reached")
    }
    assert (report.lag_goals, report.beyond_goal_seconds) == ({"busiest": 10.0}, {"busiest": 37.5})
    assert json.loads(protocol.encode(report)) == json.loads(data)


def test_a_statistics_report_is_read_as_it_was_meant() -> None:
    data = (GOLDEN / "statistics.json").read_bytes()
    report = protocol.decode(data, StatisticsReport, "statistics")
    assert (report.generation, report.sequence) == (2, 7)
    assert report.costs == {"counts/0": 1.25, "source/0": 4.5}
    assert (report.overhead_percent, report.state_bytes) == (5.5, {"counts/0": 4096})
    assert json.loads(protocol.encode(report)) == json.loads(data)


def test_what_an_older_version_did_not_know_has_its_default() -> None:
    statistics = json.loads((GOLDEN / "statistics.json").read_bytes())
    del statistics["overhead_percent"]
    data = json.dumps(statistics).encode()
    assert protocol.decode(data, StatisticsReport, "statistics").overhead_percent == 0.0
    record = json.loads((GOLDEN / "coordination.json").read_bytes())
    del record["driver_at"]
    assert session.from_record(json.dumps(record).encode(), "case").driver_at is None
    report = json.loads((GOLDEN / "progress.json").read_bytes())
    del report["finished"], report["moving"], report["stopped"], report["at"]
    del report["late_rows"]
    del report["suspected"], report["epoch_seconds"], report["store_away_at"], report["refused"]
    del report["sources"], report["lag_goals"], report["beyond_goal_seconds"]
    del report["nodes"]["n3"]["silent_seconds"], report["nodes"]["n3"]["cluster_node"]
    del report["nodes"]["n3"]["slow"]
    read = protocol.decode(json.dumps(report).encode(), ProgressReport, "progress")
    assert (read.finished, read.moving, read.stopped, read.at) == (False, None, {}, None)
    assert read.late_rows == {}
    assert read.suspected == {}
    assert (read.epoch_seconds, read.store_away_at, read.refused) == (None, None, {})
    assert read.sources == {}
    assert (read.lag_goals, read.beyond_goal_seconds) == (None, {})
    assert not read.nodes["n3"].slow
    assert (read.nodes["n3"].silent_seconds, read.nodes["n3"].cluster_node) == (None, None)
