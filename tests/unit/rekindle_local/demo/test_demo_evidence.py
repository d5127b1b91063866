"""The evidence of a demo: the output files that `rekindle verify` reads."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle import report
from rekindle.coordination import domain_placement
from rekindle.forecast import steady_state
from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle_local.demo import demo_evidence
from rekindle_spark.store.checkpoint_store import CheckpointStore

WHERE = {"placement": {"ships/0": "n1", "ships/1": "n1"}, "state_bytes": {"ships/1": 4096}}
SCHEMA = pa.schema([("carrier", pa.string()), ("flights", pa.int64())])
FACTS = report.RunFacts("", 1, "", "incremental", "pipeline", "always", "always", 1, False, 0.2)


def finished_run(directory: Path) -> demo_evidence.DemoRecords:
    """Two partitions of a query, of which only the first has rows, in epochs 1 and 2."""
    store = CheckpointStore(directory / "store")
    store.open(0.0)
    (directory / "store" / "outputs" / "late").mkdir()
    for epoch, flights in ((1, [7]), (2, [8, 9])):
        rows = {"carrier": ["AA"] * len(flights), "flights": flights}
        name = f"0-{epoch:09}.parquet"
        pq.write_table(pa.table(rows, SCHEMA), directory / "store" / "outputs" / "late" / name)
        output = ["late/0", epoch, len(flights), name, "0" * 16]
        store.commit({"at": 100.0 + epoch, "plan_epoch": 1, "finished": {}, "outputs": [output]})
    return demo_evidence.DemoRecords(
        records=[],
        store=directory / "store",
        failure_at=101.5,
        files={},
        topology=Topology((), (), ()),
        priorities={"late": 1.0},
        schemas={"late/0": SCHEMA, "late/1": SCHEMA},
        facts=FACTS,
    )


def test_the_situation_before_the_failure_is_read_back(tmp_path: Path) -> None:
    topology = Topology((TopologyOperator("ships", 2),), (), (Query("late", "ships", 7),))
    run = replace(
        finished_run(tmp_path),
        topology=topology,
        priorities={"late": 3.0},
        domains={"n1": "rack-1", "n2": "rack-2"},
        placement="domains",
        records=[
            {
                "kind": "statistics",
                "at": at,
                "costs": {"ships/0": cost, "ships/1": 2.0},
                "overhead_percent": 2 * cost,
                **WHERE,
            }
            for at, cost in ((100.0, 1.0), (101.0, 4.0), (102.0, 9.0))
        ],
    )
    demo_evidence.write_situation(tmp_path, run)
    content = (tmp_path / steady_state.FILE).read_bytes()
    state = steady_state.parse(content, "here", clock=lambda: 0.0)
    assert state.placement == WHERE["placement"]
    assert state.costs == {"ships/0": 4.0, "ships/1": 2.0}, "the newest before the failure"
    assert state.overhead_percent == 8.0
    assert state.state_bytes == {"ships/1": 4096}
    assert domain_placement.domains_of(state) == {"rack-1": ("n1",), "rack-2": ("n2",)}
    assert state.priorities == {"late/0": 1.5, "late/1": 1.5}
    assert state.policy.placement == "domains"


def test_every_query_partition_has_a_file_also_one_without_rows(tmp_path: Path) -> None:
    demo_evidence.write_outputs(tmp_path, finished_run(tmp_path))
    assert pq.read_table(tmp_path / "outputs" / "late" / "0.parquet").to_pydict() == {
        "carrier": ["AA", "AA", "AA"],
        "flights": [7, 8, 9],
        "epoch": [1, 2, 2],
        "committed_at": [-0.5, 0.5, 0.5],
    }
    empty = pq.read_table(tmp_path / "outputs" / "late" / "1.parquet")
    assert (empty.num_rows, empty.column_names[:2]) == (0, ["carrier", "flights"])
