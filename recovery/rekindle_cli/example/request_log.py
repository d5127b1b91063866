"""A web server's log of a day, made by chance from a seed: the same rows each time.

Few requests at night, many in the evening. For twenty minutes after midnight the checkout fails.
"""

import numpy as np
import pyarrow as pa

SEED = 20250301
ROWS = 60_000
DAY = np.datetime64("2025-03-01T00:00:00", "us")
PATHS = ("/", "/search", "/product", "/cart", "/checkout", "/login", "/help")
SHARES = (0.24, 0.22, 0.30, 0.09, 0.06, 0.05, 0.04)
CHECKOUT = PATHS.index("/checkout")
CLIENTS = 2_000
# When the checkout fails, in seconds of the day.
FAILING = (5 * 60, 25 * 60)


def log() -> pa.Table:
    """Make the log, sorted by time."""
    rng = np.random.default_rng(SEED)
    seconds = _moments(rng)
    paths = rng.choice(len(PATHS), ROWS, p=SHARES)
    failing = (paths == CHECKOUT) & (seconds >= FAILING[0]) & (seconds < FAILING[1])
    status = _statuses(rng, failing)
    milliseconds = rng.lognormal(3.6, 0.6, ROWS) * np.where(failing, 20.0, 1.0)
    clients = np.minimum(rng.zipf(1.3, ROWS), CLIENTS)
    return pa.table(
        {
            "time": pa.array(DAY + (seconds * 1e6).astype("timedelta64[us]")),
            "client": [f"10.0.{number // 250}.{number % 250 + 1}" for number in clients.tolist()],
            "path": [PATHS[number] for number in paths.tolist()],
            "status": pa.array(status),
            "milliseconds": pa.array(np.round(milliseconds, 1)),
        }
    )


def _moments(rng: np.random.Generator) -> np.ndarray:
    """Seconds of the day, sorted: most of them around eight in the evening."""
    hours = np.arange(24)
    weights = 1.5 + np.cos((hours - 20) / 24 * 2 * np.pi)
    chosen = rng.choice(hours, ROWS, p=weights / weights.sum())
    return np.sort(np.round(chosen * 3600 + rng.uniform(0, 3600, ROWS), 3))


def _statuses(rng: np.random.Generator, failing: np.ndarray) -> np.ndarray:
    usual = rng.choice([200, 304, 404, 500], ROWS, p=[0.90, 0.06, 0.035, 0.005])
    return np.where(failing & (rng.uniform(size=ROWS) < 0.7), 503, usual).astype(np.int64)
