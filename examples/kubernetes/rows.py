"""The output of machines.py so far: how many rows each query has, and the newest ones.

Output counts when a commit says so. Waits until there is some.
"""

import time

import pyarrow as pa
import pyarrow.parquet as pq

import rekindle.model.errors

STORE = "/shared/store"
WITHIN_A_MINUTE = {"minutes": "machine", "hottest-machines": "rank"}


def files(query: str) -> list[str]:
    """The query's files that count, oldest first; none before a run of the pipeline has begun."""
    try:
        return rekindle.read(STORE, query).paths()
    except rekindle.model.errors.InputError:
        return []


while not all(map(files, WITHIN_A_MINUTE)):
    time.sleep(1)  # noqa: TID251 - nothing of the core
for query, column in WITHIN_A_MINUTE.items():
    rows = pa.concat_tables(map(pq.read_table, files(query)))
    print(f"{query}: {len(rows)} rows, the newest of them")
    ordered = rows.sort_by([("window_end", "descending"), (column, "ascending")])
    for row in ordered.slice(0, 3).to_pylist():
        print("  {window_end:%H:%M} {machine} mean {mean:.1f} peak {peak:.1f}".format(**row))
