"""A peer in the demo's failure, small: a node dies and comes back, and all rows are right."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from source_roots import SOURCES

from rekindle import verification
from rekindle.model import run_events
from rekindle_bench import outage_figures, protect_benchmark
from rekindle_local import failure_schedule
from rekindle_local.local_nodes import LocalNode
from rekindle_peers import peer_run
from rekindle_peers.peer_scenario import PeerTrial
from rekindle_peers.peer_table import PROTECTED

QUERIES = ("destination-weeks",)
NODES = [LocalNode(index).name for index in range(3)]
TRIAL = PeerTrial(
    2_000.0,
    failure_schedule.drawn(NODES, (1,), seed=1),
    QUERIES,
    nodes=3,
    cpu_quota=1.0,
    settle_seconds=4.0,
    first_return_seconds=2.0,
    back_seconds=4.0,
    judged=False,
)
RIGHT = {"missing": 0, "duplicated": 0, "wrong": 0}


@pytest.mark.parametrize("peer", ["structured-streaming", PROTECTED])
def test_structured_streaming_loses_a_node_that_comes_back_and_no_row(
    peer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", SOURCES)
    shown: list[dict[str, Any]] = []
    used: list[dict[str, float]] = []

    def meter(*parts: Any) -> dict[str, float]:
        used.append(protect_benchmark.cpu_seconds(*parts))
        return used[-1]

    outcome = peer_run.perform(peer, TRIAL, tmp_path, shown.append, meter)
    assert outcome.report is not None
    counts = dict(outcome.report["exactly_once"])
    assert counts.pop("expected_rows") > 0
    assert counts == RIGHT
    assert outcome.report["victims"] == list(TRIAL.victims[0])
    assert [entry["node"] for entry in outcome.report["returns"]] == list(TRIAL.victims[0])
    assert verification.verify(tmp_path, time.monotonic) == ()
    # since its start: in the seconds before the failure it may use less than the kernel's tick
    assert (used[-1]["sidecar"] > 0) == (peer == PROTECTED)
    assert outcome.cpu_shares["all"] > outcome.cpu_shares["python"] > 0
    events = run_events.parse((tmp_path / "events.jsonl").read_text())
    figures = outage_figures.figures(events, outage_figures.alone(TRIAL.priorities))
    name = "weighted_unavailable_seconds"
    assert figures[name] == pytest.approx(outcome.report[name])
    assert set(figures["queries"]) == set(
        json.loads((tmp_path / "report.json").read_text())["queries"]
    )
