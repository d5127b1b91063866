"""Errors: what is taken from those of somebody else."""

import pytest

from rekindle.model.errors import first_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one", "one"),
        ("one\ntwo", "one"),
        ("\n  one \ntwo", "one"),
        ("", "ValueError"),
        (" \n", "ValueError"),
    ],
)
def test_the_first_line_of_an_error_is_never_empty(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line
