"""The rows of a finished run of Structured Streaming as a report's directory has them.

A batch of a query is an epoch of that query alone. It reflects its input from its commit on, as an
epoch does, though windows that it completes are put out by the batch behind it: the counting is in
Spark's favour. `peers.evidence` writes them.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle_local.demo import demo_evidence
from rekindle_peers.peer_evidence import PeerRun
from rekindle_peers.structured_streaming import committed_batches


def tables(run: PeerRun, query: str) -> Sequence[pa.Table]:
    """Every row that counts, with batch and commit time."""
    committed = {batch.number: batch for batch in committed_batches.committed(run.store, query, 0)}
    return [
        demo_evidence.stamped(
            _plain(pq.read_table(path)), number, committed[number].committed_at - run.failure_at
        )
        for number, path in committed_batches.output_files(run.store, query)
    ]


def _plain(table: pa.Table) -> pa.Table:
    """Times without a time zone, as the batch engine gives them; they are UTC."""
    kinds = [
        (field.name, pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(kinds))
