"""The parts that all cases share: an attempt, its error in words, and the verdict."""

import datetime as dt
import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Attempt = tuple[Any, BaseException | None]


def times(count: int, unit: str = "us", step_seconds: float = 1.0) -> pa.Array:
    """Event times from the first of January 2024 on."""
    start = dt.datetime(2024, 1, 1)
    found = [start + dt.timedelta(seconds=number * step_seconds) for number in range(count)]
    return pa.array(found, pa.timestamp(unit))


def attempt(action: Callable[[], Any]) -> Attempt:
    """Return (value, None), or (None, the error) of any kind."""
    try:
        return action(), None
    except BaseException as error:  # panics of Rust libraries are no Exception
        return None, error


def worded(error: BaseException | None) -> str:
    """Return an error's type and message."""
    return "nothing" if error is None else f"{type(error).__name__}: {str(error)[:300]}"


def end(is_right: bool, right: str) -> None:
    """End the process: exit code 0 where the product does right, 1 where it does not."""
    print(f"{'RIGHT' if is_right else 'WRONG'}: {right}", flush=True)
    os._exit(0 if is_right else 1)  # threads of the product may still run
