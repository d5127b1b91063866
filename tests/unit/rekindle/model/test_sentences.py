"""Parts of sentences for people."""

import pytest

from rekindle.model.sentences import counted, percent


def test_one_thing_is_singular_and_all_other_numbers_are_plural() -> None:
    assert [counted(number, "node") for number in (0, 1, 2, 1_000)] == [
        "0 nodes",
        "1 node",
        "2 nodes",
        "1,000 nodes",
    ]
    assert counted(1, "query waits", "queries wait") == "1 query waits"
    assert counted(3, "query waits", "queries wait") == "3 queries wait"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 %"),
        (0.04, "0 %"),
        (1.78908, "1.8 %"),
        (5.0, "5 %"),
        (9.94, "9.9 %"),
        (9.96, "10 %"),
        (145.217, "145 %"),
        (12_345.6, "12346 %"),
    ],
)
def test_a_share_of_a_core_has_a_decimal_below_ten_only(value: float, text: str) -> None:
    assert percent(value) == text
