"""What is sent to executors, and what is refused because it cannot be."""

import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from rekindle.model.errors import InputError
from rekindle_spark.operators import StatefulOperator
from rekindle_spark.pipeline import program, program_pickle
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.testing import TableSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])


def mapped(function: Any) -> program.Program:
    pipeline = Pipeline("p")
    rows = pipeline.source("rows", TableSource(SCHEMA.empty_table(), "at"))
    rows.map("plain", lambda table: table, schema=SCHEMA).map("step", function, schema=SCHEMA).sink(
        "out"
    )
    return program.build(pipeline)


@contextmanager
def written(text: str, tmp_path: Path) -> Iterator[ModuleType]:
    """A module of that text, sent by value as a pipeline file is."""
    file = tmp_path / "written.py"
    file.write_text(text)
    module = ModuleType("written")
    module.__file__ = str(file)
    exec(compile(text, str(file), "exec"), module.__dict__)
    sys.modules["written"] = module
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield module
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
        del sys.modules["written"]


def refusal(built: program.Program) -> str:
    with pytest.raises(InputError) as caught:
        program_pickle.pack(built)
    return str(caught.value)


def test_a_program_comes_back_as_it_was() -> None:
    built = mapped(lambda table: table.slice(1))
    again = program_pickle.unpack(program_pickle.pack(built))
    assert again.hash == built.hash
    assert again.chains[0].steps[1].function(pa.table({"x": [1, 2]})).num_rows == 1


def test_a_global_that_cannot_be_sent_is_named_with_step_and_file(tmp_path: Path) -> None:
    text = (
        "import threading\nLOCK = threading.Lock()\n\n"
        "def guarded(t):\n    with LOCK:\n        return t\n"
    )
    with written(text, tmp_path) as module:
        said = refusal(mapped(module.guarded))
    assert said.startswith("step step: uses the global 'LOCK', which cannot be sent to executors")
    assert "cannot pickle '_thread.lock' object" in said
    assert f"in guarded ({tmp_path / 'written.py'}:4)" in said
    assert "make it inside the function" in said


def test_a_global_of_a_helper_is_named_with_the_way_to_it(tmp_path: Path) -> None:
    text = (
        "import sqlite3\nDATABASE = sqlite3.connect(':memory:')\n"
        "def helper(t):\n    return DATABASE and t\n"
        "def looked_up(t):\n    return [helper(t) for _ in t] and t\n"
    )
    with written(text, tmp_path) as module:
        said = refusal(mapped(module.looked_up))
    assert "uses the global 'DATABASE', which cannot be sent" in said
    assert "by way of the global 'helper'" in said


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda lock: lambda table: lock and table, "the variable 'lock'"),
        (lambda lock: partial(lambda table, held: held and table, held=lock), "argument 'held'"),
        (lambda lock: lambda table, held=lock: held and table, "the default of argument"),
        (lambda lock: lambda table: {"lock": lock}["lock"] and table, "the variable 'lock'"),
    ],
)
def test_what_else_a_function_holds_is_named(make: Any, name: str) -> None:
    assert name in refusal(mapped(make(threading.Lock())))


def test_an_attribute_of_an_operator_is_named() -> None:
    class Looking(StatefulOperator):
        value_schema = pa.schema([("n", pa.int64())])

        def __init__(self) -> None:
            self.connection = sqlite3.connect(":memory:")

        def handle(self, *_: Any) -> Any:
            return ()

    pipeline = Pipeline("p")
    rows = pipeline.source("rows", TableSource(SCHEMA.empty_table(), "at"))
    rows.stateful("counts", Looking(), keys=["key"], schema=SCHEMA).sink("out")
    said = refusal(program.build(pipeline))
    assert said.startswith("step counts: uses the attribute 'connection' of Looking, which cannot")
