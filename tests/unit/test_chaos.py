"""Chaos without a cluster: what is drawn, how it is kept, what queries answer, how it shrinks."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle.errors import InputError
from rekindle.verification.engine import Engine, literal, quoted
from rekindle_local.chaos import application, drawing, inputs, shapes, shrinking, statements, trials
from rekindle_local.chaos.sabotage import FOLDER, Sabotage
from rekindle_local.chaos.trials import Trial
from rekindle_spark import program

SEEDS = range(1, 41)
KINDS = {
    "source": trials.Source,
    "filter": trials.Filter,
    "scale": trials.Scale,
    "window": trials.Window,
    "top": trials.Top,
    "rises": trials.Rises,
    "join": trials.Join,
    "union": trials.Union,
}


def drawn(seed: int, rows: int = 200) -> Trial:
    """A trial of few rows."""
    trial = drawing.draw(seed, processes=True)
    steps = [
        msgspec.structs.replace(step, rows=rows) if isinstance(step, trials.Source) else step
        for step in trial.steps
    ]
    return msgspec.structs.replace(trial, steps=tuple(steps))


def test_a_seed_gives_the_same_trial_and_a_file_keeps_it(tmp_path: Path) -> None:
    trial = drawing.draw(3, processes=True)
    assert trial == drawing.draw(3, processes=True)
    assert trial != drawing.draw(4, processes=True)
    path = tmp_path / "trial.json"
    path.write_text(trials.serialize(trial))
    assert trials.load(path) == trial


@pytest.mark.parametrize("seed", SEEDS)
def test_every_trial_can_be_run_and_its_queries_answered(tmp_path: Path, seed: int) -> None:
    trial = drawn(seed)
    inputs.write(trial, tmp_path / "input")
    built = program.build(application.build(trial, tmp_path))
    found = shapes.of_all(trial.steps)
    schemas = {sink.name: sink.schema for chain in built.chains for sink in chain.sinks}
    with Engine() as engine:
        for source in trial.sources:
            path = literal(str(inputs.path(tmp_path / "input", source.name)))
            engine.ask(f"CREATE VIEW {quoted(source.name)} AS FROM read_parquet({path})", "input")
        for name, select in statements.tables(trial.steps):
            engine.ask(f"CREATE TABLE {quoted(name)} AS {select}", name)
        for sink in trial.sinks:
            columns = list(found[sink.input].columns)
            assert schemas[sink.name].names == columns
            assert list(engine.columns(quoted(sink.input), sink.name)) == columns


def test_every_kind_of_step_and_of_fault_comes_up() -> None:
    some = [drawing.draw(seed, processes=True) for seed in SEEDS]
    steps = {type(step) for trial in some for step in trial.steps}
    assert steps >= set(KINDS.values())
    faults = {fault.kind for trial in some for fault in trial.faults}
    assert faults == {*drawing.KINDS, *drawing.PROCESS_KINDS}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "is no trial"),
        ('{"version": 1}', "is no trial"),
        (trials.serialize(drawing.draw(1)).replace('"version": 1', '"version": 9'), "version 9"),
    ],
)
def test_a_file_that_is_no_trial_is_refused(tmp_path: Path, content: str, what: str) -> None:
    path = tmp_path / "trial.json"
    path.write_text(content)
    with pytest.raises(InputError, match=what):
        trials.load(path)


@given(st.sets(st.integers(0, 20), min_size=1, max_size=4))
def test_what_is_left_still_fails_and_nothing_of_it_can_go(guilty: set[int]) -> None:
    def fails(items: Sequence[int]) -> bool:
        return guilty <= set(items)

    assert shrinking.shortest(range(21), fails, 1_000) == sorted(guilty)


def test_shrinking_keeps_to_its_number_of_runs() -> None:
    asked = []

    def fails(items: Sequence[int]) -> bool:
        asked.append(items)
        return 3 in items

    left = shrinking.shortest(range(16), fails, 3)
    assert 3 in left
    assert len(asked) == 3


def test_every_sabotage_can_be_done() -> None:
    text = (FOLDER / "sitecustomize.py").read_text()
    for kind in Sabotage:
        assert f'"{kind}": "rekindle_spark.' in text
        assert f"def {kind.replace('-', '_')}(" in text
