"""Chaos without a cluster: what is drawn, how it is kept, what queries answer, how it shrinks."""

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.model.errors import InputError, RunError
from rekindle.verification.batch_check import BatchEngine, quoted
from rekindle_chaos import (
    fault_shrinking,
    oracle,
    step_schemas,
    trial_generator,
    trial_inputs,
    trial_parser,
    trial_pipeline,
    trial_run,
    trial_sql,
    trial_topics,
    trials,
)
from rekindle_chaos.sabotage import FOLDER, Sabotage
from rekindle_chaos.trial_session import Session
from rekindle_chaos.trials import ChaosTrial
from rekindle_cli import command_line
from rekindle_spark.connectors.decoding import Json
from rekindle_spark.pipeline import program

SEEDS = range(1, 41)
SINK = {"type": "sink", "name": "q", "priority": 1}
SCALE = {"type": "scale", "name": "c", "input": "s", "column": "code", "factor": 1, "plus": 1}
FILTER = {"type": "filter", "name": "f", "input": "s", "above": 1}
KINDS = {
    "source": trials.TrialSource,
    "filter": trials.Filter,
    "scale": trials.ScaleStep,
    "window": trials.WindowStep,
    "top": trials.TopStep,
    "rises": trials.Rises,
    "join": trials.Join,
    "union": trials.Union,
}


def drawn(seed: int, rows: int = 200, *, kafka: bool = False) -> ChaosTrial:
    """A trial of few rows."""
    trial = trial_generator.draw(seed, processes=True, kafka=kafka)
    steps = [
        msgspec.structs.replace(step, rows=rows) if isinstance(step, trials.TrialSource) else step
        for step in trial.steps
    ]
    return msgspec.structs.replace(trial, steps=tuple(steps))


def source(name: str) -> dict[str, object]:
    return {"type": "source", "name": name, "rows": 5, "keys": 2, "parallelism": 1}


def test_a_seed_gives_the_same_trial_and_a_file_keeps_it(tmp_path: Path) -> None:
    trial = trial_generator.draw(3, processes=True)
    assert trial == trial_generator.draw(3, processes=True)
    assert trial != trial_generator.draw(4, processes=True)
    path = tmp_path / "trial.json"
    path.write_text(trials.serialize(trial))
    assert trials.load(path) == trial


@pytest.mark.parametrize("kafka", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_trial_can_be_run_and_its_queries_answered(
    tmp_path: Path, seed: int, kafka: bool
) -> None:
    trial = drawn(seed, kafka=kafka)
    trial_inputs.write(trial, tmp_path / "input")
    (tmp_path / trial_topics.SERVERS).write_text("nobody-is-asked:9092")
    built = program.build(trial_pipeline.build(trial, tmp_path))
    found = step_schemas.of_all(trial.steps)
    schemas = {sink.name: sink.schema for chain in built.chains for sink in chain.sinks}
    with BatchEngine() as engine:
        trial_sql.create(engine, trial, tmp_path / "input")
        for sink in trial.sinks:
            columns = list(found[sink.input].columns)
            schema = schemas[sink.name]
            assert schema is not None
            assert schema.names == columns
            assert list(engine.columns(quoted(sink.input), sink.name)) == columns


def test_every_kind_of_step_and_of_fault_comes_up() -> None:
    some = [trial_generator.draw(seed, processes=True) for seed in SEEDS]
    steps = {type(step) for trial in some for step in trial.steps}
    assert steps >= set(KINDS.values())
    faults = {fault.kind for trial in some for fault in trial.faults}
    assert faults == {*trial_generator.KINDS, *trial_generator.PROCESS_KINDS}


def test_trials_with_kafka_have_topics_on_both_sides_and_all_else_as_before() -> None:
    drawn_with = [trial_generator.draw(seed, kafka=True) for seed in SEEDS]
    for trial in drawn_with:
        assert any(source.topic for source in trial.sources)
        assert any(sink.topic for sink in trial.sinks)
        assert all(sink.topic or not sink.key for sink in trial.sinks)
        assert not trial_generator.draw(trial.seed).topics
    sources = [source for trial in drawn_with for source in trial.sources]
    sinks = [sink for trial in drawn_with for sink in trial.sinks]
    assert {step.topic for step in sources} | {step.topic for step in sinks} == {0, 1, 2, 3}
    assert {sink.key for sink in sinks} >= {"", "key"}
    faults = {(fault.kind, fault.what) for trial in drawn_with for fault in trial.faults}
    assert {(kind, what) for kind in trial_generator.BROKER_KINDS for what in "123"} <= faults


def test_rows_of_topics_are_those_of_files_and_come_at_their_pace(tmp_path: Path) -> None:
    trial = drawn(5, rows=7, kafka=True)
    source = next(source for source in trial.sources if source.topic)
    trial_inputs.write(trial, tmp_path)
    sent = list[tuple[int, bytes]]()
    client = SimpleNamespace(produce=lambda _, value, partition: sent.append((partition, value)))
    rows = trial_topics._Rows(source, trial_topics._values(tmp_path, source))
    for share in (0.0, 0.5, 0.5, 2.0):
        rows.write(client, share, threading.Event())
        assert len(sent) == min(7, int(7 * share))
    assert rows.is_written
    schema = trial_topics.schema_of(step_schemas.of(source, {}))
    wanted = pq.read_table(trial_inputs.path(tmp_path, source.name)).to_pylist()
    found = Json(schema, {"at": "us"}).decode([value for _, value in sent])
    assert found.rows.to_pylist() == wanted
    assert [partition for partition, _ in sent] == [n % source.topic for n in range(7)]


def test_rows_that_a_topic_lacks_or_has_twice_are_found(tmp_path: Path) -> None:
    trial = trials.ChaosTrial(
        1,
        1,
        1.0,
        1,
        1,
        False,
        (trials.TrialSource("s", 5, 2, 1, topic=1), trials.Sink("q", "s", 1, topic=2)),
        {},
        {},
        (),
    )
    trial_inputs.write(trial, tmp_path / "input")
    rows = pq.read_table(trial_inputs.path(tmp_path / "input", "s"))
    for name, table in (("0", rows[:2]), ("1", rows[2:]), ("doubled", rows[1:]), ("few", rows[3:])):
        pq.write_table(table, tmp_path / name)

    def bad(*names: str) -> dict[str, int]:
        topics = {"q": [(tmp_path / name, f"topic q/{name}") for name in names]}
        return oracle.check(trial, tmp_path, tmp_path / "store", topics).bad

    missing_in_files = len(rows)
    assert bad("0", "1") == {"missing": missing_in_files, "duplicated": 0, "wrong": 0}
    assert bad("0", "doubled")["duplicated"] == 1
    assert bad("0", "few")["missing"] == missing_in_files + 1


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "is no trial"),
        ('{"version": 1}', "is no trial"),
        (b'{"version": "\xff"}', "is no trial"),
        (
            trials.serialize(trial_generator.draw(1)).replace('"version": 1', '"version": 9'),
            "version 9",
        ),
    ],
)
def test_a_file_that_is_no_trial_is_refused(
    tmp_path: Path, content: str | bytes, what: str
) -> None:
    path = tmp_path / "trial.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=what):
        trials.load(path)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_trial_that_was_kept_is_taken(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "trial.json"
    trial = trial_generator.draw(seed, processes=True, kafka=seed % 2 == 0)
    path.write_text(trials.serialize(trial))
    assert trial_parser.read(path) == trial


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": -1}, "is no trial"),
        ({"seconds": 0}, "is no trial"),
        ({"faults": [{"at": -1, "kind": "raise"}]}, "is no trial"),
        ({"faults": [{"at": 1, "kind": "flood"}]}, "no fault 'flood'; known are kill-node"),
        ({"faults": [{"at": 1, "kind": "kill-sidecar"}]}, "no fault 'kill-sidecar'"),
        ({"faults": [{"at": 1, "kind": "kill-broker", "what": "1"}]}, "no fault 'kill-broker'"),
        ({"faults": [{"at": 1, "kind": "kill-node", "nodes": [77]}]}, "node 77, of nodes 0 to 3"),
        ({"faults": [{"at": 1, "kind": "kill-node"}]}, "kill-node of no node"),
        (
            {
                "faults": [{"at": 1, "kind": "damage-record"}],
                "policy": {"buffering": "adaptive", "ordering": "adaptive"},
            },
            "damage-record without",
        ),
        ({"policy": {"bufering": "always"}}, "bufering"),
        ({"runtime": {"epoch_seconds": -1}}, "epoch_seconds"),
        ({"runtime": {"nodes_expected": 50}}, "runtime says nodes_expected"),
        ({"rows_per_second": 10**15}, "is no trial"),
        ({"steps": [source("../away"), {**SINK, "input": "../away"}]}, "is no trial"),
        (
            {"steps": [source("s"), {**FILTER, "column": "nothing"}, {**SINK, "input": "f"}]},
            "step f: cannot be used .*; mend it, or give a file",
        ),
        ({"steps": []}, "has no sink"),
        ({"faults": [{"at": 80, "kind": "raise"}]}, "raise at 80 s, after the 60 s of input"),
        ({"steps": [source("s"), {**FILTER, "above": 2**63}]}, "is no trial"),
        (
            {"steps": [source("s"), {**SCALE, "into": "value"}, {**SINK, "input": "c"}]},
            "step c adds the column value, which is there",
        ),
        (
            {"steps": [{**SINK, "input": "nobody"}]},
            r"cannot be run \('nobody'\)",
        ),
    ],
)
def test_a_trial_that_could_not_be_run_is_refused(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    path = tmp_path / "trial.json"
    whole = msgspec.json.decode(trials.serialize(trial_generator.draw(1)))
    path.write_bytes(msgspec.json.encode({**whole, **changed}))
    with pytest.raises(InputError, match=message):
        trial_parser.read(path)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--seeds", "1..2"), ("--minutes", "1"), ("--processes", None), ("--kafka", None)],
)
def test_options_beside_a_trial_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str | None
) -> None:
    arguments = ["chaos", "--trial", str(tmp_path), option, *([value] if value else [])]
    assert command_line.run(command_line.application, arguments) == 2
    said = f"{option}: is given beside --trial, which says it; leave it out"
    assert capsys.readouterr().err.startswith(said)


def test_what_failed_before_an_interruption_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(trial: ChaosTrial, _: object, directory: Path) -> trial_run.TrialVerdict:
        (directory / "log").touch()
        if trial.seed == 2:
            raise KeyboardInterrupt
        return trial_run.TrialVerdict(trial, failure="a row is missing")

    monkeypatch.setattr(trial_run, "machines", lambda *_, **__: nullcontext())
    monkeypatch.setattr(trial_run, "run", run)
    wanted = [msgspec.structs.replace(trial_generator.draw(seed), faults=()) for seed in (1, 2)]
    with pytest.raises(RunError, match="seed 1: a row is missing"):
        Session(tmp_path, None, lambda _: None).run(wanted)
    (tmp_path / "seed-2" / "log").unlink()
    (tmp_path / "seed-2").rmdir()
    with pytest.raises(KeyboardInterrupt):
        Session(tmp_path, None, lambda _: None).run(wanted[1:])


@given(st.sets(st.integers(0, 20), min_size=1, max_size=4))
def test_what_is_left_still_fails_and_nothing_of_it_can_go(guilty: set[int]) -> None:
    def fails(items: Sequence[int]) -> bool:
        return guilty <= set(items)

    assert fault_shrinking.shortest(range(21), fails, 1_000) == sorted(guilty)


def test_shrinking_keeps_to_its_number_of_runs() -> None:
    asked = []

    def fails(items: Sequence[int]) -> bool:
        asked.append(items)
        return 3 in items

    left = fault_shrinking.shortest(range(16), fails, 3)
    assert 3 in left
    assert len(asked) == 3


@pytest.mark.parametrize("kind", Sabotage, ids=str)
def test_faults_that_show_a_sabotage_are_drawn_alone(kind: Sabotage) -> None:
    some = [trial_generator.draw(seed, only=kind.faults) for seed in SEEDS]
    assert {fault.kind for trial in some for fault in trial.faults} == set(kind.faults)
    for trial in [
        trial_generator.draw(seed, only=kind.faults, ordering="adaptive") for seed in SEEDS
    ]:
        assert (trial.policy["buffering"], trial.policy["ordering"]) == ("adaptive", "adaptive")
    for seed, trial in zip(SEEDS, some, strict=True):
        of_all_faults = trial_generator.draw(seed)
        steps = [step for step in trial.steps if step in of_all_faults.steps]
        assert trial.policy == of_all_faults.policy
        assert len(steps) >= len(trial.steps) - 4, "but for dead letters the steps are the same"


def test_each_of_several_things_that_a_fault_harms_comes_up() -> None:
    found = {
        (fault.kind, fault.what)
        for seed in range(1, 101)
        for fault in trial_generator.draw(seed, kafka=True, only=trial_generator.WHAT).faults
    }
    assert found == {(kind, what) for kind, whats in trial_generator.WHAT.items() for what in whats}


def test_what_has_become_public_with_a_checkpoint_is_not_lost() -> None:
    for seed in range(1, 201):
        trial = trial_generator.draw(seed, only=("damage-record", "flip-byte"))
        if trial.policy["ordering"] != "always":
            assert all(fault.what == "exchange" for fault in trial.faults)


def test_every_sabotage_can_be_done() -> None:
    text = (FOLDER / "sitecustomize.py").read_text()
    for kind in Sabotage:
        assert f'"{kind}": "rekindle_spark.' in text
        assert f"def {kind.replace('-', '_')}(" in text
