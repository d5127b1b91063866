"""Case 06: 2,200 rows of a MiB each in an epoch; all go over the exchange, or the step is refused.

It takes about 4.5 GB of memory.
"""

import numpy as np
import pyarrow as pa
import verdicts

from rekindle.model.errors import RekindleError
from rekindle_spark.operators import arrow_columns, row_hash

ROWS, CHUNK_ROWS = 2200, 100


def main() -> None:
    chunk = pa.array([b"x" * 2**20] * CHUNK_ROWS, pa.binary())  # shared by all chunks
    payload = pa.chunked_array([chunk] * (ROWS // CHUNK_ROWS))
    table = pa.table({"k": pa.array(np.arange(ROWS)), "payload": payload})
    parts, error = verdicts.attempt(lambda: row_hash.split(table, ["k"], 1))
    sent = None if parts is None else sum(part.num_rows for part in parts.values())
    print("rows:", ROWS, "over the exchange:", sent if error is None else verdicts.worded(error))
    _, other = verdicts.attempt(lambda: arrow_columns.whole(table["payload"]))
    print("arrow_columns.whole:", verdicts.worded(other))
    verdicts.end(
        sent == ROWS or isinstance(error, RekindleError),
        "all rows go, or the step is refused with its row sizes; never fewer rows silently",
    )


if __name__ == "__main__":
    main()
