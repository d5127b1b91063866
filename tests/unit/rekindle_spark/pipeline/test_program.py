"""Programs: pipelines fused into chains, with partitions numbered in topological order."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from rekindle.model.errors import InputError
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline, Step, Stream, count
from rekindle_testing.runtime_builders import UnreadSource

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string()), ("size", pa.int64())])


def keep(table: pa.Table) -> Any:
    return table["size"]


def counted(stream: Stream, name: str, keys: Sequence[str] = ("key",), parallelism: int = 1) -> Any:
    return stream.window(
        name, keys=keys, size_seconds=60, aggregates={"n": count()}, parallelism=parallelism
    )


def three_levels(function: Any = keep) -> Pipeline:
    built = Pipeline("levels")
    rows = built.source("rows", UnreadSource(SCHEMA, "at"), parallelism=2)
    kept = rows.filter("kept", function)
    kept.sink("every-row", priority=3, lag_goal_seconds=10)
    hourly = counted(kept, "hourly", parallelism=3)
    hourly.sink("counts", priority=2)
    hourly.top("largest", by="n", count=2, ties=["key"]).sink("top")
    return built


def test_stateless_steps_and_sinks_are_fused_into_the_chain_that_they_follow() -> None:
    chains = {chain.name: chain for chain in program.build(three_levels()).chains}
    assert list(chains) == ["rows", "hourly", "largest"]
    assert [step.name for step in chains["rows"].steps] == ["kept"]
    assert [sink.name for sink in chains["rows"].sinks] == ["every-row"]
    assert [chain.keyed for chain in chains.values()] == [False, True, True]


def test_partitions_are_numbered_in_topological_order() -> None:
    built = program.build(three_levels())
    assert built.partition_names == (
        *("rows/0", "rows/1"),
        *("hourly/0", "hourly/1", "hourly/2"),
        "largest/0",
    )
    assert [chain.level for chain in built.chains] == [0, 1, 2]
    for number in range(len(built.partition_names)):
        assert all(producer < number for _, producer in built.producers(number))


def test_every_partition_of_a_producer_feeds_every_partition_of_its_consumer() -> None:
    built = program.build(three_levels())
    hourly, largest = built.numbers["hourly/1"], built.numbers["largest/0"]
    assert [producer for _, producer in built.producers(hourly)] == [0, 1]
    assert [producer for _, producer in built.producers(largest)] == [2, 3, 4]


def test_an_exchange_starts_at_the_step_that_feeds_it_and_aggregates_before_it() -> None:
    edges = program.build(three_levels()).edges
    assert [(edge.step, edge.keys, edge.combine) for edge in edges] == [
        ("kept", ("key",), True),
        ("hourly", (), True),
    ]


def test_the_planner_sees_operators_edges_and_queries_with_priorities() -> None:
    seen = program.build(three_levels()).topology
    assert [(operator.name, operator.parallelism) for operator in seen.operators] == [
        ("rows", 2),
        ("hourly", 3),
        ("largest", 1),
    ]
    assert set(seen.edges) == {("rows", "hourly"), ("hourly", "largest")}
    assert {(query.name, query.operator, query.priority) for query in seen.queries} == {
        ("every-row", "rows", 3),
        ("counts", "hourly", 2),
        ("top", "largest", 1),
    }
    goals = {query.name: query.lag_goal_seconds for query in seen.queries}
    assert goals == {"every-row": 10, "counts": None, "top": None}


def test_a_union_feeds_a_keyed_step_from_each_of_its_streams() -> None:
    built = Pipeline("union")
    one, other = (
        built.source("one", UnreadSource(SCHEMA, "at")),
        built.source("other", UnreadSource(SCHEMA, "at"), parallelism=2),
    )
    counted(built.union("both", one, other), "counted").sink("counts")
    made = program.build(built)
    assert [(edge.step, edge.slot) for edge in made.edges] == [("one", 0), ("other", 0)]
    assert len(list(made.producers(made.numbers["counted/0"]))) == 3


def test_the_hash_follows_the_structure_and_not_the_functions() -> None:
    first = program.build(three_levels()).hash
    assert program.build(three_levels(lambda table: table["at"])).hash == first
    longer = three_levels()
    Stream(longer, "largest", SCHEMA, "at").sink("again")
    assert program.build(longer).hash != first


def test_a_program_survives_the_way_to_a_host() -> None:
    built = program.build(three_levels(lambda table: table["size"]))
    copy = cloudpickle.loads(cloudpickle.dumps(built))
    assert copy.hash == built.hash
    assert copy.partition_names == built.partition_names


def test_a_cycle_is_refused_with_its_steps() -> None:
    built = Pipeline("cycle")
    built.source("rows", UnreadSource(SCHEMA, "at")).sink("every-row")
    for name, before in (("first", "second"), ("second", "first")):
        built.add(Step(name, "map", (before,), 1, None, SCHEMA, "at"))
    with pytest.raises(InputError, match="cycle first -> second -> first: nothing on it") as caught:
        program.build(built)
    assert "operator" not in str(caught.value)


def test_a_pipeline_without_a_sink_is_refused() -> None:
    built = Pipeline("open")
    built.source("rows", UnreadSource(SCHEMA, "at"))
    with pytest.raises(InputError, match=r"pipeline open: has no sink; end at least one stream"):
        program.build(built)


def test_an_input_that_is_no_step_is_refused_with_those_that_are() -> None:
    built = Pipeline("open")
    built.source("rows", UnreadSource(SCHEMA, "at"))
    Stream(built, "row", SCHEMA, "at").sink("every-row")
    with pytest.raises(InputError, match="step every-row: reads 'row', which is no step; name one"):
        program.build(built)


def test_a_union_without_a_key_behind_it_is_refused() -> None:
    built = Pipeline("union")
    built.union(
        "both",
        built.source("one", UnreadSource(SCHEMA, "at")),
        built.source("other", UnreadSource(SCHEMA, "at")),
    ).sink("rows")
    with pytest.raises(InputError, match="step rows: reads the union 'both' without a key; put"):
        program.build(built)


def test_a_source_that_leads_to_no_sink_is_refused_as_a_step() -> None:
    built = Pipeline("open")
    built.source("rows", UnreadSource(SCHEMA, "at")).sink("every-row")
    counted(built.source("others", UnreadSource(SCHEMA, "at")), "counts")
    with pytest.raises(InputError, match="step others: leads to no sink, so nothing"):
        program.build(built)


def with_a_draw() -> program.Program:
    """rows -> kept -> hourly, and rows -> drawn -> by-draw -> largest, `drawn` being uncertain."""
    built = Pipeline("draws")
    rows = built.source("rows", UnreadSource(SCHEMA, "at"), parallelism=2)
    counted(rows.filter("kept", keep), "hourly").sink("counts")
    drawn = rows.map("drawn", keep, schema=SCHEMA, deterministic=False)
    by_draw = counted(drawn, "by-draw", parallelism=2)
    by_draw.top("largest", by="n", count=2, ties=["key"]).sink("top")
    return program.build(built)


def test_what_follows_an_uncertain_step_is_uncertain() -> None:
    built = with_a_draw()
    assert built.uncertain_steps == {"drawn", "by-draw", "largest"}
    names = {built.partition_names[number] for number in built.uncertain}
    assert names == {"rows/0", "rows/1", "by-draw/0", "by-draw/1", "largest/0"}
    assert program.build(three_levels()).uncertain == set()


def test_what_has_dead_letters_or_reads_from_it_may_leave_out_other_rows_in_a_repeat() -> None:
    pipeline = three_levels()
    assert program.build(pipeline).lenient == set()
    pipeline.steps["kept"] = replace(pipeline.steps["kept"], dead_letters=True)
    pipeline.source("others", UnreadSource(SCHEMA, "at")).sink("all-others")
    built = program.build(pipeline)
    assert {built.owner[number].name for number in built.lenient} == {"rows", "hourly", "largest"}


def test_what_reads_beside_a_step_with_dead_letters_is_the_same_in_a_repeat() -> None:
    pipeline = Pipeline("beside")
    rows = pipeline.source("rows", UnreadSource(SCHEMA, "at"))
    rows.map("checked", keep, schema=SCHEMA, dead_letters=True).sink("sound")
    counted(rows, "hourly").sink("counts")
    built = program.build(pipeline)
    assert built.lenient_steps == {"checked"}
    assert {built.owner[number].name for number in built.lenient} == {"rows"}


def test_only_what_was_made_of_uncertain_output_depends_on_it() -> None:
    built = with_a_draw()

    def dependents(name: str) -> set[str]:
        found = built.dependents([built.numbers[name]])
        return {built.partition_names[number] for number in found}

    assert dependents("rows/1") == {"by-draw/0", "by-draw/1", "largest/0"}
    assert dependents("by-draw/0") == {"largest/0"}
    assert dependents("hourly/0") == set()


def test_that_a_step_is_uncertain_does_not_count_in_the_hash() -> None:
    certain, uncertain = three_levels(), three_levels()
    uncertain.steps["kept"] = replace(uncertain.steps["kept"], deterministic=False)
    assert program.build(certain).hash == program.build(uncertain).hash
