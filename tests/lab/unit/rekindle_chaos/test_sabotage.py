"""What is broken on purpose is broken in the processes of a trial, and only there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rekindle_chaos.sabotage import FOLDER, VARIABLE, Sabotage

LIMIT_SECONDS = 60.0
# A driver is fenced, and its checkpoint comes late; it makes public what counts already.
LATE_CHECKPOINT = """
import json, sys
from rekindle_spark.output import output_commit as staging
from rekindle_spark.store.checkpoint_store import CheckpointStore as Store
from rekindle.model.errors import FencedError
output = ["q/0", 1, 5, "0-1.parquet", "ab"]
told = {"at": 1.0, "plan_epoch": 1, "finished": {"q/0": [1, 1, ["ab"]]}, "outputs": [output]}
older, newer = Store(sys.argv[1]), Store(sys.argv[1])
older.open(1.0)
newer.open(2.0)
newer.log_offsets(1, {"offsets": {}})
newer.commit(told)
older.check_generation = lambda: None
content = {"bytes": {}, "older": {}, "program": "p", "published": {**told, "checkpoint": 1}}
older.complete_checkpoint(1, content)
history = Store(sys.argv[1]).open(3.0)
owed = staging.unpublished(history)
print(json.dumps([
    history.checkpoint is not None,
    bool(owed and staging.without_committed(owed, history.fold, {})["outputs"]),
]))
"""
UNCHECKED_FRAME = """
import json
import pyarrow as pa
from rekindle_spark.executor import frames
block = bytearray(frames.encode(frames.Label(1, 2, 3, 4, 5, 6), pa.table({"n": [16]})))
block[block.rindex(16)] = 20
found, whole = frames.sound(memoryview(bytes(block)))
print(json.dumps([bool(found), whole]))
"""
FORGOTTEN_LETTER = """
import json
from types import SimpleNamespace
from rekindle_spark.jobs import job_specs as jobs
from rekindle_spark.user_code.dead_letter_sieve import LeftOutRows as Choice
program = SimpleNamespace(owner=[SimpleNamespace(reads="")])
progress = SimpleNamespace(program=program, choices={(0, 1): {"step": Choice((3,), ())}})
print(json.dumps([bool(jobs._choices(progress, 0, 1, 1))]))
"""
# Calls nothing: a call that the runtime makes has to fit, all of its arguments given.
SIGNATURES = """
import importlib, inspect, json, sys
import sitecustomize as sabotage
name = sys.argv[2]
module = importlib.import_module(sabotage.MODULES[name])
owners = [module, *(found for found in vars(module).values() if inspect.isclass(found))]
before = {(owner, key): found for owner in owners for key, found in vars(owner).items()}
sabotage.BREAK[name](module)
fit = []
for (owner, key), old in before.items():
    new = vars(owner)[key]
    if new is not old and callable(new):
        taken = inspect.signature(old).parameters.values()
        named = {one.name: None for one in taken if one.kind is one.KEYWORD_ONLY}
        inspect.signature(new).bind(*[None] * (len(taken) - len(named)), **named)
        fit.append(True)
print(json.dumps(fit))
"""


def said(code: str, directory: Path, sabotage: str | None, *words: str) -> list[bool]:
    path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
    variables = {"PYTHONPATH": path, **({VARIABLE: sabotage} if sabotage else {})}
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory), *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[bool] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("sabotage", "code", "mended", "broken"),
    [
        ("late-checkpoint", LATE_CHECKPOINT, [False, False], [True, True]),
        ("unchecked-frame", UNCHECKED_FRAME, [False, False], [True, True]),
        ("forgotten-letter", FORGOTTEN_LETTER, [True], [False]),
    ],
)
def test_a_sabotage_takes_out_what_mends(
    tmp_path: Path, sabotage: str, code: str, mended: list[bool], broken: list[bool]
) -> None:
    assert said(code, tmp_path / "mended", None) == mended
    assert said(code, tmp_path / "broken", sabotage) == broken


@pytest.mark.parametrize("sabotage", list(Sabotage))
def test_a_sabotage_fits_the_calls_of_the_runtime(tmp_path: Path, sabotage: str) -> None:
    assert said(SIGNATURES, tmp_path, None, sabotage)
