"""The same loss with Rekindle and without: lags by Spark's checkpoint, outages, the ratio."""

import json
import math
import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rekindle.model.errors import RunError
from rekindle_operator.api import recovery_policy
from scenarios import application_scenarios, file_streams, protection_cost, scenario_selection
from scenarios.application_scenarios import SCENARIOS, WITH, WITHOUT, Outcome
from scenarios.file_streams import FileStream
from scenarios.scenario_run import ClusterRun


@pytest.fixture
def stream(tmp_path: Path) -> FileStream:
    made = FileStream("orders", tmp_path, 7)
    made.input.mkdir(parents=True)
    for log in ("commits", "offsets", "sources/0"):
        (tmp_path / "checkpoints/orders" / log).mkdir(parents=True)
    return made


def step(stream: FileStream, name: str, files: dict[str, int]) -> None:
    """A file of the source's log: of each input file the step that found it."""
    lines = [
        json.dumps({"path": f"file:///input/orders/{file}", "timestamp": 1, "batchId": number})
        for file, number in files.items()
    ]
    path = stream.directory / "checkpoints/orders/sources/0" / name
    path.write_text("\n".join(["v1", *lines]))


def commit(stream: FileStream, batch: int, offset: int, at: float) -> None:
    folder = stream.directory / "checkpoints/orders"
    (folder / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"logOffset":{offset}}}')
    path = folder / "commits" / str(batch)
    path.write_text("v1\n{}")
    (folder / "commits" / f".{batch}.crc").write_bytes(b"crc")
    os.utime(path, (at, at))


def test_a_file_is_committed_with_the_first_batch_that_goes_so_far(stream: FileStream) -> None:
    for at in (1.0, 2.0, 3.0, 4.0):
        stream.write(at)
    step(stream, "0", {"1000.json": 0, "2000.json": 0})
    step(stream, "1", {"3000.json": 1})
    step(stream, "2", {"4000.json": 2})
    commit(stream, 0, 0, 10.0)
    stream.look()
    assert stream.committed == {"1000.json": 10.0, "2000.json": 10.0}
    assert (stream.lag(12.0), stream.batches(0.0), stream.batches(11.0)) == (9.0, 1, 0)
    commit(stream, 1, 2, 14.0)  # a driver was lost between two steps: one batch has both
    stream.look()
    assert sorted(stream.waits(0.0, 20.0)) == [8.0, 9.0, 10.0, 11.0]
    assert stream.committed["3000.json"] == stream.committed["4000.json"] == 14.0
    assert stream.lag(20.0) == 0.0


def test_a_stream_keeps_up_by_the_oldest_file_of_its_newest_batch(stream: FileStream) -> None:
    assert stream.oldest_wait() == math.inf
    for at in (1.0, 20.0, 25.0):
        stream.write(at)
    step(stream, "0", {"1000.json": 0, "20000.json": 1, "25000.json": 1})
    commit(stream, 0, 0, 40.0)
    stream.look()
    assert stream.oldest_wait() == 39.0
    commit(stream, 1, 1, 42.0)
    stream.look()
    assert stream.oldest_wait() == 22.0


def test_streams_may_be_written_to_while_somebody_looks(stream: FileStream) -> None:
    class WrittenMeanwhile(dict[str, float]):
        """Another file comes whenever somebody asks for one that is committed."""

        def __contains__(self, name: object) -> bool:
            stream.write(100.0 + len(stream.written))
            return super().__contains__(name)

    stream.write(1.0)
    stream.write(2.0)
    files = stream.files()
    assert next(files) == (1.0, math.inf)
    stream.write(3.0)
    assert list(files) == [(2.0, math.inf)]
    stream.committed = WrittenMeanwhile({"1000.json": 4.0})
    assert stream.lag(10.0) == 8.0
    assert len(stream.written) == 6


def test_files_that_spark_has_put_together_are_read_too(stream: FileStream) -> None:
    for at in (1.0, 2.0):
        stream.write(at)
    step(stream, "9.compact", {"1000.json": 3, "2000.json": 9})
    commit(stream, 3, 3, 5.0)
    commit(stream, 9, 9, 8.0)
    stream.look()
    assert stream.committed == {"1000.json": 5.0, "2000.json": 8.0}


def test_spark_sees_a_file_whole(stream: FileStream) -> None:
    stream.write(7.0)
    (path,) = stream.input.iterdir()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert (path.name, len(rows)) == ("7000.json", 7)


def test_a_query_is_unavailable_while_an_old_file_is_not_committed() -> None:
    files = [(0.0, 4.0), (10.0, 30.0), (12.0, 31.0), (40.0, 44.0), (50.0, math.inf)]
    assert file_streams.outages(files, 5.0, 0.0, 70.0) == [(15.0, 31.0), (55.0, 70.0)]
    assert file_streams.outages(files, 5.0, 20.0, 25.0) == [(20.0, 25.0)]
    assert file_streams.outages(files, 5.0, 32.0, 50.0) == []


def test_unavailability_is_the_mean_by_priority() -> None:
    found = file_streams.weighted_unavailable_seconds(
        {"orders": [(0.0, 10.0)], "clicks": [(0.0, 20.0), (30.0, 50.0)]},
        {"orders": 3.0, "clicks": 1.0},
    )
    assert found == pytest.approx(17.5)


def runs(ours: float, theirs: float) -> dict[str, dict[str, object]]:
    seconds = {WITH: ours, WITHOUT: theirs}
    busy = {"before the loss": 72, "after it": None}
    return {
        way: {"weighted_unavailable_seconds": value, "busy_percent": busy, "cores": {}}
        for way, value in seconds.items()
    }


def test_the_ratio_stands_beside_its_bar() -> None:
    told = application_scenarios.figures(SCENARIOS["displacement"], runs(30.0, 120.0))
    assert told[application_scenarios.RATIO] == {"value": 0.25, "unit": "", "bar": 0.35}
    assert [one["value"] for one in told.values()] == [0.25, 30.0, 120.0]


def test_protection_costs_what_its_driver_takes_beyond_one_without() -> None:
    pair = runs(30.0, 120.0)
    pair[WITH]["cores"] = {"python": 0.01, "calls": 0.006, "sidecar": 0.002, "all": 1.0}
    pair[WITHOUT]["cores"] = {"python": 0.002, "calls": 0.001, "sidecar": 0.0, "all": 1.0}
    told = application_scenarios.figures(SCENARIOS["protected-queries"], pair)
    assert told[application_scenarios.COST] == {"value": 1.5, "unit": "%", "bar": 1.0}
    assert "not measured" not in application_scenarios.verdict(
        SCENARIOS["protected-queries"], told, pair
    )


def test_a_process_that_ends_or_begins_takes_nothing_off_what_others_have_used() -> None:
    none = {"python": 0.0, "calls": 0.0, "sidecar": 0.0}
    before = {(7, 100): {**none, "all": 10.0}, (8, 100): {**none, "all": 500.0}}
    after = {(7, 100): {**none, "all": 40.0}, (8, 900): {**none, "all": 3.0}}
    assert protection_cost.cores(before, after, 60.0) == {**none, "all": 0.5}
    assert protection_cost.cores({}, {}, 60.0) == {}


def test_where_no_cpu_was_measured_the_cost_is_left_out_and_the_verdict_says_so() -> None:
    pair = runs(30.0, 120.0)
    for way in (WITH, WITHOUT):
        pair[way]["cores"] = {"python": 0.0, "calls": 0.0, "sidecar": 0.0, "all": 0.0}
    told = application_scenarios.figures(SCENARIOS["protected-queries"], pair)
    assert application_scenarios.COST not in told
    said = application_scenarios.verdict(SCENARIOS["protected-queries"], told, pair)
    assert said.endswith("the CPU that protection costs was not measured")


def test_both_runs_of_a_pair_are_measured_by_the_larger_lag() -> None:
    files = {"stream-1": ((10.0, 40.0),)}
    seen = {
        WITH: Outcome(("a",), 5.0, 0.0, 60.0, files, {"after it": 0.987}),
        WITHOUT: Outcome(("a",), 20.0, 0.0, 60.0, files),
    }
    told = application_scenarios.compare(seen, {"stream-1": 1.0})
    assert [one["weighted_unavailable_seconds"] for one in told.values()] == [10.0, 10.0]
    assert [one["own_lag_seconds_max"] for one in told.values()] == [5.0, 20.0]
    assert [one["busy_percent"] for one in told.values()] == [{"after it": 99}, {}]


@pytest.mark.parametrize(("ours", "word"), [(50.0, "met"), (51.0, "missed")])
def test_the_outcome_says_whether_the_bar_was_met_and_what_it_is_made_of(
    ours: float, word: str
) -> None:
    scenario, pair = SCENARIOS["applications"], runs(ours, 100.0)
    said = application_scenarios.verdict(
        scenario, application_scenarios.figures(scenario, pair), pair
    )
    assert f"bar 0.5, {word}; " in said
    assert f"{WITH} {ours} s (CPU in use before the loss 72 %)" in said
    assert f"{WITHOUT} 100.0 s" in said


@pytest.mark.parametrize("drivers_restart", [False, True])
def test_a_driver_that_fails_after_the_failure_may_be_made_again(drivers_restart: bool) -> None:
    failed: Any = SimpleNamespace(
        metadata=SimpleNamespace(name="driver"), status=SimpleNamespace(phase="Failed")
    )
    site: Any = SimpleNamespace(
        core=SimpleNamespace(list_namespaced_pod=lambda *_, **__: SimpleNamespace(items=[failed])),
        operators=SimpleNamespace(failures=[]),
    )
    witness: Any = SimpleNamespace(logs=SimpleNamespace(folder="logs"))
    run = ClusterRun(
        site=site, witness=witness, scaler=cast(Any, None), drivers_restart=drivers_restart
    )
    with pytest.raises(RunError, match="has failed"):
        run._check_driver()
    run.begin_failure()
    with nullcontext() if drivers_restart else pytest.raises(RunError, match="has failed"):
        run._check_driver()


def test_where_nothing_was_unavailable_there_is_no_ratio() -> None:
    with pytest.raises(RunError, match="there is no ratio"):
        application_scenarios.figures(SCENARIOS["applications"], runs(0.0, 0.0))


@pytest.mark.parametrize("nodes", [4, 5, 10, 20])
def test_executors_have_room_on_the_nodes_and_most_nodes_are_lost(nodes: int) -> None:
    room = application_scenarios.EXECUTORS_PER_NODE * nodes
    for scenario in SCENARIOS.values():
        load = scenario.load(nodes)
        assert 0 < load.executors * len(load.groups) <= room
    names = [f"n{number}" for number in range(nodes)]
    lost = application_scenarios.victims(names)
    assert len(lost) == round(0.8 * nodes)
    assert lost == application_scenarios.victims(names[::-1])


def test_unchanged_applications_have_nothing_of_rekindle() -> None:
    load = application_scenarios.six_applications(10)
    body = application_scenarios.application("stream-10", load, "image:1", protect=False)
    spec = body["spec"]
    assert "rekindle" not in json.dumps({**spec, "image": ""})
    assert spec["executor"]["instances"] == 3
    assert "affinity" not in spec["executor"]
    assert spec["arguments"] == ["/shared", "3", "stream-10=10"]
    assert body["metadata"]["name"] == "stream-10"


def test_a_protected_application_asks_for_the_sidecar() -> None:
    load = application_scenarios.fifteen_queries(10)
    spec = application_scenarios.application("queries", load, "image:1", protect=True)["spec"]
    assert spec["driver"]["labels"] == {"rekindle.dev/inject": "true"}
    assert spec["arguments"][-1] == "--protect"
    assert len(spec["arguments"]) == 2 + 15 + 1
    assert "podAntiAffinity" in spec["executor"]["affinity"], "there is one on each node"


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_policies_are_ones_that_the_operator_reads(name: str) -> None:
    load = SCENARIOS[name].load(10)
    body = {
        "apiVersion": "rekindle.dev/v1alpha1",
        "kind": "RecoveryPolicy",
        "metadata": {"name": "everything", "namespace": "factory", "uid": "u"},
        "spec": {
            "selector": {"sparkApplications": {"labelSelector": {}}},
            **application_scenarios.policy_spec(load),
        },
    }
    policy = recovery_policy.from_object(body)
    assert {one.query: one.priority for one in policy.spec.priorities} == load.priorities
    minimums = [one.minimum_executors for one in policy.spec.applications]
    assert minimums == ([] if load.protected else [2] * 6)


def test_they_run_once_whatever_the_strategies() -> None:
    selected = scenario_selection.select(["applications"], ["blocking", "incremental"])
    assert [run.name for run in selected.runs] == ["applications"]
