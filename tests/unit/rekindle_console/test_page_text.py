"""Figures as the console writes them."""

import pytest

from rekindle_console import page_text


@pytest.mark.parametrize(
    ("cpu", "text"), [(0.44, "0.4\u00a0%"), (12.0, "12\u00a0%"), (1600.0, "1600\u00a0%")]
)
def test_cpu_is_written_in_percent_of_a_core(cpu: float, text: str) -> None:
    assert page_text.percent(cpu) == text
