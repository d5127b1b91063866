"""The custom resource definitions of others: a test without Go and without the cache is skipped."""

from collections.abc import Callable
from functools import cache
from typing import Any

import loud_skips

from rekindle.model.errors import RekindleError
from testbed import foreign_crds

__all__ = ["spark_applications", "stored"]

Definitions = list[dict[str, Any]]


@cache
def stored(*names: str) -> Definitions:
    """Each with the version that an API server without their controllers can store."""
    return _or_skip(lambda: foreign_crds.stored(*names))


@cache
def spark_applications() -> Definitions:
    """Both kinds of SparkApplication."""
    return _or_skip(foreign_crds.spark_applications)


def _or_skip(found: Callable[[], Definitions]) -> Definitions:
    try:
        return found()
    except RekindleError as error:
        loud_skips.skip(error)
