"""Errors: what is taken from those of somebody else, and what is shown."""

import pytest

from rekindle.model.errors import InputError, first_line, printable


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("blé 😀", "blé 😀"),
        ("a\nb", "a\nb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb\x00", "a\\rb\\x00"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202etxt.yp", "\\u202etxt.yp"),
        ("\udcff", "\\udcff"),
    ],
)
def test_no_terminal_obeys_what_an_error_shows(text: str, shown: str) -> None:
    error = InputError(where=text, what=text, remedy=text)
    assert printable(text) == shown
    assert str(error) == f"{shown}: {shown}; {shown}"
    assert error.where == text
