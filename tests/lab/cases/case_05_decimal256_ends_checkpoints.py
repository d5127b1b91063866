"""Case 05: the checkpoint thread gets 3,000 values of decimal256, then a small state."""

import os
import queue
import threading
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import verdicts
from memory_files import MemoryFiles

from rekindle_spark.checkpoint import state_files
from rekindle_spark.executor.partition import PartitionState
from rekindle_spark.operators import StatefulOperator
from rekindle_spark.operators.stateful import KeyedValues
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.program import Chain
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline

SECONDS_MAX = 60.0


class Balance(StatefulOperator):
    value_schema = pa.schema([("wei", pa.decimal256(76, 0))])

    def handle(self, _key: Any, _rows: Any, value: Any) -> Any:
        value.update((Decimal(1),))
        return ()


def keyed_chain() -> Chain:
    pq.write_table(pa.table({"k": ["a"] * 10, "t": verdicts.times(10)}), "d.parquet")
    pipeline = Pipeline("p")
    rows = pipeline.source("rows", Replay("d.parquet", event_time="t"))
    rows.stateful("balance", Balance(), keys=["k"], schema=rows.schema).sink("q")
    return program.build(pipeline).chains[1]


def state(chain: Chain, keys: int) -> PartitionState:
    waiting = chain.root.function.initial().waiting
    values = {(f"k{number}",): ((Decimal(number),), 0) for number in range(keys)}
    return PartitionState(0, KeyedValues(values, waiting, 2**63 - 1, -(2**63), 0))


def main() -> None:
    died: list[str] = []
    threading.excepthook = lambda ended: died.append(str(ended.exc_type))
    writer, files, chain = state_files.Checkpoints(), MemoryFiles(), keyed_chain()
    writer.start()
    written = []
    for epoch, keys in ((1, 3000), (2, 1)):
        name = f"checkpoints/{epoch}/st-0.state"
        writing = state_files.Writing(files, name, chain, 1, epoch, epoch, 0, state(chain, keys))
        writer.submit(writing)
        try:
            written.append(writer.written.get(timeout=SECONDS_MAX))
        except queue.Empty:
            print("no acknowledgement came")
        print(f"after a state of {keys} values:", written, sorted(files.content), died)
    verdicts.end(
        len(written) == 2 and len(files.content) == 2 and not died,
        "both are written (in full, without a delta), or the pipeline is refused when it is built",
    )


if __name__ == "__main__":
    os.environ["RUST_BACKTRACE"] = "0"
    main()
