"""The benchmark of a long past: its stores are such as drivers leave and start on."""

from pathlib import Path

from rekindle_bench import past_results
from rekindle_bench.past_results import Start
from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_store import commit_log, commit_segments, store_files


def test_a_store_with_a_past_is_one_that_a_driver_starts_on(tmp_path: Path) -> None:
    commits = 2 * commit_segments.LENGTH + 30
    past_results.write_store(tmp_path, commits)
    assert commit_log.newest(store_files.at(tmp_path)) == commits
    known = [number for number, _ in commit_log.commits(store_files.at(tmp_path))]
    assert known == list(range(1, commits + 1))
    history = CheckpointStore(tmp_path).open(1.0)
    assert history.fold.commits == commits + 1, "a start has sealed the log"
    assert history.checkpoint is not None
    assert history.checkpoint["epoch"] == commits - past_results.BEHIND
    assert sorted(history.offsets) == list(range(commits - past_results.BEHIND, commits + 1))
    single = {path.name for path in (tmp_path / "commits").glob("*.json")}
    assert len(single) == commits - 2 * commit_segments.LENGTH + 1, (
        "older ones are in segments alone"
    )


def test_what_a_start_takes_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    past_results.write_store(tmp_path, 100)
    found = past_results._started(tmp_path)
    assert found.commits == 101, "and its own"
    assert 0 < found.seconds < 60
    assert found.peak_bytes > 10 * 2**20


def test_bars_compare_the_two_stores_turn_by_turn(tmp_path: Path) -> None:
    samples = {
        past_results.FEW: [Start(0.1, 100, 1), Start(0.2, 100, 1), Start(0.1, 100, 1)],
        10_000: [Start(0.1, 130, 1), Start(0.4, 130, 1), Start(0.3, 110, 1)],
    }
    found = past_results._judge(samples, 10_000, 3, tmp_path)
    assert (found["time_ratio"], found["memory_ratio"]) == (2.0, 1.3)
    assert [bar["met"] for bar in found["bars"]] == [True, False]
