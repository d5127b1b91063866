"""Tests of the suite look at the syntax trees of all files, of which nothing is left after them."""

from collections.abc import Iterator

import pytest
import syntax_trees


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    with syntax_trees.kept():
        yield
