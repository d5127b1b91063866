"""The lag from topic to topic without a broker: rates and bars."""

from pathlib import Path

from rekindle_bench import kafka_lag


def test_the_rate_is_that_of_the_middle_half() -> None:
    slow_ends = [(0.0, 10), (50.0, 100), (51.0, 200), (52.0, 300), (90.0, 400)]
    assert kafka_lag.middle_rate(slow_ends) == 100.0


def test_the_bar_is_about_the_median_of_three_rounds_in_epochs(tmp_path: Path) -> None:
    kept = kafka_lag.judge(1_000.0, [9.0, 3.0, 1.0], "command", tmp_path)
    assert [(one["value"], one["met"]) for one in kept["bars"]] == [("3.00", True)]
    missed = kafka_lag.judge(1_000.0, [3.1, 3.1, 1.0], "command", tmp_path)
    assert [one["met"] for one in missed["bars"]] == [False]
    few = kafka_lag.judge(1_000.0, [1.0], "command", tmp_path)
    assert [one["met"] for one in few["bars"]] == [False]
