"""The sources' files of a trial: rows sorted by event time, no two rows of a trial at the same one.

So the order of rows is the same for everybody, whatever source they come from.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rekindle_chaos.trials import ChaosTrial

BEGIN = 1_600_000_000 * 1_000_000
GAP_MICROSECONDS = 1_000_000
NULLS = 0.02


def path(directory: Path, source: str) -> Path:
    """Where the file of a source lies."""
    return directory / f"{source}.parquet"


def write(trial: ChaosTrial, directory: Path) -> None:
    """Write all files."""
    directory.mkdir(parents=True, exist_ok=True)
    sources = trial.sources
    for number, source in enumerate(sources):
        rng = np.random.default_rng((trial.seed, number))
        gaps = rng.integers(1, 2 * GAP_MICROSECONDS, source.rows)
        at = BEGIN + np.cumsum(gaps) * len(sources) + number
        keys = (source.keys * rng.random(source.rows) ** 2).astype(np.int64)
        table = pa.table(
            {
                "at": pa.array(at, pa.timestamp("us")),
                "key": pa.array(
                    [f"key-{key}" for key in keys], mask=rng.random(source.rows) < NULLS
                ),
                "code": pa.array(rng.integers(0, 6, source.rows)),
                "value": pa.array(
                    rng.integers(-500, 500, source.rows), mask=rng.random(source.rows) < NULLS
                ),
            }
        )
        pq.write_table(table, path(directory, source.name), row_group_size=16_384)
