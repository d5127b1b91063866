"""States of keyed operators for another parallelism: each key's rows go where its input will go.

Works on the tables that an operator dumps: the first has whole numbers, the others rows with their
keys in the columns that its `state_keys` names. Pure; `savepoint_upgrade` reads and writes the
states.
"""

from collections.abc import Sequence

import pyarrow as pa

from rekindle_spark.operators import row_hash, state_tables

LATE_ROWS = "late_rows"


def redistributed(
    state_keys: Sequence[Sequence[str]], dumped: Sequence[Sequence[pa.Table]], parallelism: int
) -> list[list[pa.Table]]:
    """The tables of `parallelism` partitions from those of the partitions before, in order.

    The whole numbers are moments before which nothing has to be done, of which the earliest holds
    for all, and the count of late rows, which the first partition takes over.
    """
    if len(dumped) == parallelism:
        return [list(of_one) for of_one in dumped]
    scalars = [state_tables.load_scalars(of_one[0]) for of_one in dumped]
    whole = {name: min(one[name] for one in scalars) for name in scalars[0]}
    late_rows = sum(one[LATE_ROWS] for one in scalars)
    fresh = [
        [state_tables.dump_scalars(**{**whole, LATE_ROWS: 0 if index else late_rows})]
        for index in range(parallelism)
    ]
    for place, keys in enumerate(state_keys, start=1):
        joined = pa.concat_tables([of_one[place] for of_one in dumped]).combine_chunks()
        parts = row_hash.split(joined, keys, parallelism)
        for index, of_one in enumerate(fresh):
            of_one.append(parts.get(index, joined.schema.empty_table()))
    return fresh
