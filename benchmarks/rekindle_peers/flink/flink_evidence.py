"""The rows of a finished run of Flink as a report's directory has them.

A checkpoint is an epoch of all queries. A file belongs to the first commit of its query that was
not before it got its name. `peers.evidence` writes them.
"""

from bisect import bisect_left
from collections.abc import Sequence

import pyarrow as pa

from rekindle_local.demo import demo_evidence
from rekindle_peers.flink import flink_outputs
from rekindle_peers.peer_evidence import PeerRun


def tables(run: PeerRun, query: str) -> Sequence[pa.Table]:
    """Every row that counts, with checkpoint and commit time."""
    commits = [
        record for record in run.records if record["kind"] == "commit" and record["query"] == query
    ]
    moments = [record["at"] for record in commits]
    found = []
    for path in flink_outputs.committed_files(run.store, query):
        named_at = path.stat().st_ctime
        place = min(bisect_left(moments, named_at), len(commits) - 1)
        at = max(named_at, moments[place]) - run.failure_at
        found.append(
            demo_evidence.stamped(flink_outputs.read(query, path), commits[place]["epoch"], at)
        )
    return found
