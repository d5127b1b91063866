"""Dead letters of a trial: left out of the answers, and each of them a row that may be one."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rekindle.model.errors import InputError
from rekindle_chaos import (
    oracle,
    trial_generator,
    trial_inputs,
    trial_parser,
    trial_pipeline,
    trials,
)
from rekindle_chaos.trials import LOOKED_UP_EVERY, ChaosTrial
from rekindle_spark.store.checkpoint_store import CheckpointStore

ROWS = 2_000
LETTERS, QUERY = "looked-up.dead-letters", "query-looked-up"


def lettered(tmp_path: Path) -> ChaosTrial:
    """A source, a step with dead letters, and its two queries."""
    drawn = trial_generator.draw(1, only=("lookup-away",))
    steps = [trials.TrialSource("source-0", ROWS, 5, 1), *drawn.steps[-4:]]
    steps[1] = msgspec.structs.replace(steps[1], input="source-0")
    steps = [step for step in steps if not (isinstance(step, trials.Sink) and step.name != QUERY)]
    trial = msgspec.structs.replace(drawn, steps=tuple(steps))
    trial_inputs.write(trial, tmp_path / "input")
    return trial


def committed(tmp_path: Path, outputs: dict[str, pa.Table]) -> Path:
    """A store in which these tables are the output of epoch 1."""
    store = CheckpointStore(tmp_path / "store")
    store.open(1.0)
    store.make_outputs(outputs)
    named = []
    for name, table in outputs.items():
        pq.write_table(table, tmp_path / "store" / "outputs" / name / "0-1.parquet")
        named.append([f"{name}/0", 1, table.num_rows, "0-1.parquet", "ab"])
    store.commit({"at": 1.0, "plan_epoch": 1, "finished": {}, "outputs": named})
    return tmp_path / "store"


def split(tmp_path: Path, trial: ChaosTrial) -> tuple[pa.Table, pa.Table]:
    """The rows that may be dead letters, and what the step gives of all others."""
    table = pq.read_table(tmp_path / "input" / "source-0.parquet")
    values = table["value"].to_pylist()
    may_be = [value is not None and value % LOOKED_UP_EVERY == 0 for value in values]
    others = table.filter(pa.array([not one for one in may_be]))
    (step,) = trial.lettered
    function = trial_pipeline._looked_up(step, tmp_path)
    return table.filter(pa.array(may_be)), function(others)


def test_rows_that_were_left_out_are_missing_nowhere(tmp_path: Path) -> None:
    trial = lettered(tmp_path)
    letters, rest = split(tmp_path, trial)
    store = committed(tmp_path, {LETTERS: letters, QUERY: rest})
    found = oracle.check(trial, tmp_path, store)
    assert (found.bad, found.samples) == ({"missing": 0, "duplicated": 0, "wrong": 0}, [])
    assert found.expected == ROWS
    assert letters.num_rows > 10


def test_a_dead_letter_that_is_there_twice_is_found(tmp_path: Path) -> None:
    trial = lettered(tmp_path)
    letters, rest = split(tmp_path, trial)
    twice = pa.concat_tables([letters, letters.slice(0, 1)])
    store = committed(tmp_path, {LETTERS: twice, QUERY: rest})
    bad = oracle.check(trial, tmp_path, store).bad
    assert bad == {"missing": 0, "duplicated": 1, "wrong": 0}


def test_a_row_that_could_be_looked_up_is_no_dead_letter(tmp_path: Path) -> None:
    trial = lettered(tmp_path)
    letters, rest = split(tmp_path, trial)
    lost = rest.slice(3, 1)
    store = committed(
        tmp_path,
        {
            LETTERS: pa.concat_tables([letters, lost.select(letters.column_names)]),
            QUERY: pa.concat_tables([rest.slice(0, 3), rest.slice(4)]),
        },
    )
    assert oracle.check(trial, tmp_path, store).bad["wrong"] == 1


def test_what_is_looked_up_raises_only_while_it_is_away(tmp_path: Path) -> None:
    trial = lettered(tmp_path)
    letters, _ = split(tmp_path, trial)
    (step,) = trial.lettered
    function = trial_pipeline._looked_up(step, tmp_path)
    assert function(letters).num_rows == letters.num_rows
    (tmp_path / trial_pipeline.LOOKUP).touch()
    with pytest.raises(LookupError):
        function(letters.slice(0, 1))


def test_dead_letters_of_rows_that_their_time_does_not_tell_apart_are_refused(
    tmp_path: Path,
) -> None:
    trial = trial_generator.draw(1, only=("lookup-away",))
    steps = list(trial.steps)
    window = next(step for step in steps if isinstance(step, trials.WindowStep))
    keyed = msgspec.structs.replace(window, name="by-key", input=steps[0].name, keys=("code",))
    column = next(iter(keyed.aggregates))
    step = trials.ScaleStep("late", "by-key", column, 1, 1, "more", letters=True)
    steps += [keyed, step, trials.Sink("q", "late", 1)]
    path = tmp_path / "trial.json"
    path.write_text(trials.serialize(msgspec.structs.replace(trial, steps=tuple(steps))))
    with pytest.raises(InputError, match="step late has dead letters"):
        trial_parser.read(path)
