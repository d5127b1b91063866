"""How programs are run: to their end, within a limit, and with what they have said in the error."""

import pytest

from rekindle.errors import InputError, RunError
from testbed import programs

HOW = {"where": "the program", "remedy": "look", "seconds_max": 60.0}


def test_what_a_program_prints_comes_back_and_what_it_warns_of_does_not() -> None:
    assert programs.run(["sh", "-c", "echo warned >&2; cat"], **HOW, input="given") == "given"


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("echo printed; echo first >&2; echo ' last' >&2; exit 1", "last"),
        ("echo printed; exit 1", "printed"),
        ("exit 3", "ended with code 3"),
    ],
)
def test_a_program_that_fails_says_its_last_line(script: str, what: str) -> None:
    with pytest.raises(RunError, match=f"^the program: {what}; look$"):
        programs.run(["sh", "-c", script], **HOW)


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(InputError, match=r"^the program: there is no nobody-has-this; install it"):
        programs.run(["nobody-has-this"], **HOW)


def test_a_program_that_does_not_end_is_killed_at_its_limit() -> None:
    with pytest.raises(RunError, match="the program: has not ended within 0 s; look"):
        programs.run(["sleep", "1000"], **{**HOW, "seconds_max": 0.1})
