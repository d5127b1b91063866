"""Whether a benchmark that has missed a bar is an error."""

from typing import Any

import pytest

from rekindle.model.errors import RunError
from rekindle_bench.enforcement import enforce


def result(*met: bool) -> dict[str, Any]:
    return {"bars": [{"bar": f"bar {n}", "met": one} for n, one in enumerate(met)]}


def test_bars_that_are_missed_are_an_error_only_where_that_is_wanted() -> None:
    enforce(result(False), False)
    enforce(result(True, True), True)
    with pytest.raises(RunError, match="benchmark: missed: bar 0; bar 2; see the report for the"):
        enforce(result(False, True, False), True)
