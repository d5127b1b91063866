"""What a host uses of its memory and may use: measured, refused, and read off its container."""

import io
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_world import COUNTS, ROWS, SECOND, Desk, digests

from rekindle_spark.executor import memory_gauge
from rekindle_spark.executor.memory_gauge import MemoryGauge, OverBudget

MIB = 2**20
HEAP = 512 * MIB
BESIDE = memory_gauge.JAVA_BESIDE_HEAP_BYTES
V1_MOUNT = "35 31 0:32 {root} {mount} rw,relatime - cgroup cgroup rw,memory\n"
V2_MOUNT = "41 31 0:38 {root} {mount} rw,relatime - cgroup2 cgroup2 rw\n"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "store")


def test_every_answer_says_what_the_host_uses(desk: Desk) -> None:
    report, _ = desk.ask(ROWS, 1, 1, memory_bytes_max=2**40)
    found = report["memory"]
    assert 10 * MIB < found["used_bytes"] <= found["peak_bytes"]
    assert found["max_bytes"] == 2**40


def test_the_peak_is_of_what_has_been_given_back_already_and_begins_anew() -> None:
    gauge = MemoryGauge(None)
    before = gauge.read({}, memoryview(b""), {})
    assert np.ones(100 * MIB, np.uint8).any()
    peak = gauge.read({}, memoryview(b""), {})["peak_bytes"]
    assert peak is not None
    assert before["used_bytes"] is not None
    assert peak > before["used_bytes"] + 90 * MIB
    assert (gauge.read({}, memoryview(b""), {})["peak_bytes"] or 0) < peak - 90 * MIB


def pages(mebibytes: int) -> Any:
    """Memory that the kernel has just given: bytes may lie where this process freed others."""
    found = mmap.mmap(-1, mebibytes * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    np.frombuffer(found, np.uint8)[:] = 1
    return found


def test_what_a_request_brings_and_takes_away_is_not_what_stays() -> None:
    gauge, nothing = MemoryGauge(None), memoryview(b"")
    before = gauge.read({}, nothing, {})["used_bytes"] or 0
    data, blocks = memoryview(pages(50)), {1: [pages(20), pages(10)]}
    assert (gauge.read({}, nothing, {})["used_bytes"] or 0) - before > 70 * MIB
    assert (gauge.read({}, data, blocks)["used_bytes"] or 0) - before < 10 * MIB


def test_over_its_budget_a_host_says_so_with_its_states_and_nothing_counts(desk: Desk) -> None:
    half_a_window = {"1": {"rows": [0, 5, 5 * SECOND]}}
    _, rows = desk.ask(ROWS, 1, 1, offsets=half_a_window)
    desk.ask(COUNTS, 1, 1, b"".join(block for _, parts in rows for block in parts))
    received = desk.read_rows(2, 2)
    report, blocks = desk.ask(COUNTS, 2, 2, received, memory_bytes_max=MIB)
    assert (report["status"], report["partitions"], blocks) == ("over-budget", {}, [])
    assert report["text"].endswith(" MiB of 1 MiB")
    assert report["memory"]["peak_bytes"] > report["memory"]["max_bytes"] == MIB
    assert report["states"][str(COUNTS)] > 0
    assert digests(desk.count_rows(2, 2))


def test_versions_that_nobody_needs_go_before_the_next_epoch_runs(desk: Desk) -> None:
    for epoch in range(1, 5):
        desk.count_rows(epoch, epoch)
    assert sorted(desk.host.versions[COUNTS].by_epoch) == [3, 4]
    received = desk.read_rows(5, 5)
    told = {"finished_epochs": {str(COUNTS): 4, "99": 7}}
    desk.ask(COUNTS, 5, 5, received, finished=4, memory_bytes_max=MIB, **told)
    assert sorted(desk.host.versions[COUNTS].by_epoch) == [4]
    assert digests(desk.count_rows(5, 5, finished=4))


def test_what_the_request_says_goes_before_what_the_container_leaves() -> None:
    MemoryGauge(None).check({})
    MemoryGauge(MIB).check({"memory_bytes_max": 2**40})
    with pytest.raises(OverBudget):
        MemoryGauge(MIB).check({"memory_bytes_max": None})


def test_input_that_does_not_fit_is_passed_over_and_refused(desk: Desk) -> None:
    reader = io.BufferedReader(io.BytesIO(bytes(64 * MIB)))  # type: ignore[arg-type]
    budget = memory_gauge.used_bytes() + 32 * MIB
    refusal = MemoryGauge(budget).receive(reader, 64 * MIB, {})
    assert isinstance(refusal, OverBudget)
    assert reader.read(1) == b""
    assert refusal.reading["peak_bytes"] == (refusal.reading["used_bytes"] or 0) + 64 * MIB
    request = {
        "program": desk.named_program,
        "generation": 1,
        "plan_epoch": 1,
        "held": [],
        "store": str(desk.directory),
        "executor": "7",
    }
    report, _ = desk.host.answer(request, refusal)
    assert (report["status"], report["memory"]) == ("over-budget", refusal.reading)


def test_input_that_ends_early_is_no_reason_to_wait_for_more() -> None:
    reader = io.BufferedReader(io.BytesIO(bytes(10)))  # type: ignore[arg-type]
    assert isinstance(MemoryGauge(MIB).receive(reader, 2 * MIB, {}), OverBudget)


def container(proc: Path, cgroup: str, mountinfo: str, java: str = "java\0-Xmx512m\0Main") -> Path:
    """A folder like /proc, of a host whose Java is process 5."""
    for folder in ("self", "5"):
        (proc / folder).mkdir(parents=True)
    (proc / "self/cgroup").write_text(cgroup)
    (proc / "self/mountinfo").write_text(mountinfo)
    (proc / "5/cmdline").write_text(java)
    return proc


def limited(folder: Path, file: str, limit: int | str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(f"{limit}\n")


def test_the_container_of_v2_leaves_what_java_does_not_take(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    limited(mount, "memory.max", 2048 * MIB)
    proc = container(tmp_path / "proc", "0::/\n", V2_MOUNT.format(root="/", mount=mount))
    assert memory_gauge.allowed_bytes(5, proc) == 2048 * MIB - HEAP - BESIDE


def test_the_smallest_limit_above_a_group_of_v1_counts(tmp_path: Path) -> None:
    mount = tmp_path / "memory"
    limited(mount / "pods/pod/java", "memory.limit_in_bytes", 9223372036854771712)
    limited(mount / "pods/pod", "memory.limit_in_bytes", 1024 * MIB)
    limited(mount / "pods", "memory.limit_in_bytes", 4096 * MIB)
    proc = container(
        tmp_path / "proc",
        "4:memory:/pods/pod/java\n1:cpu,cpuacct:/\n",
        V1_MOUNT.format(root="/", mount=mount),
    )
    assert memory_gauge.allowed_bytes(5, proc) == 1024 * MIB - HEAP - BESIDE


def test_a_group_of_which_only_a_part_is_mounted_is_found(tmp_path: Path) -> None:
    mount = tmp_path / "memory"
    limited(mount / "java", "memory.limit_in_bytes", 1024 * MIB)
    proc = container(
        tmp_path / "proc",
        "4:memory:/docker/abc/java\n",
        V1_MOUNT.format(root="/docker/abc", mount=mount),
    )
    assert memory_gauge.allowed_bytes(5, proc) == 1024 * MIB - HEAP - BESIDE


@pytest.mark.parametrize("limit", ["max", None])
def test_where_nothing_limits_a_container_there_is_no_budget(
    tmp_path: Path, limit: str | None
) -> None:
    mount = tmp_path / "cgroup"
    if limit is not None:
        limited(mount, "memory.max", limit)
    proc = container(tmp_path / "proc", "0::/\n", V2_MOUNT.format(root="/", mount=mount))
    assert memory_gauge.allowed_bytes(5, proc) is None


@pytest.mark.parametrize(
    ("java", "heap"),
    [
        ("java\0-Xmx1g\0-Xmx256M\0", 256 * MIB),
        ("java\0-Xmx1048576\0", MIB),
        ("java\0-Dword=-Xmx9g\0", 512 * MIB),
        ("", 512 * MIB),
    ],
)
def test_the_heap_is_what_java_was_told_last_or_a_quarter_of_the_container(
    tmp_path: Path, java: str, heap: int
) -> None:
    mount = tmp_path / "cgroup"
    limited(mount, "memory.max", 2048 * MIB)
    proc = container(tmp_path / "proc", "0::/\n", V2_MOUNT.format(root="/", mount=mount), java)
    assert memory_gauge.allowed_bytes(5, proc) == 2048 * MIB - heap - BESIDE


def test_a_container_that_java_fills_leaves_nothing(tmp_path: Path) -> None:
    mount = tmp_path / "cgroup"
    limited(mount, "memory.max", 600 * MIB)
    proc = container(tmp_path / "proc", "0::/\n", V2_MOUNT.format(root="/", mount=mount))
    assert memory_gauge.allowed_bytes(5, proc) == 0


def test_a_kernel_without_control_groups_limits_nothing(tmp_path: Path) -> None:
    assert memory_gauge.allowed_bytes(5, tmp_path) is None


def test_the_container_of_this_very_process_can_be_asked() -> None:
    allowed = memory_gauge.allowed_bytes(1)
    assert allowed is None or allowed >= 0


def test_while_a_function_runs_its_host_may_pass_the_budget_by_a_share() -> None:
    contained = MemoryGauge(100 * MIB)
    assert contained.function_bytes_max({}) == 125 * MIB
    assert contained.function_bytes_max({"memory_bytes_max": 100 * MIB}) == 400 * MIB
    assert MemoryGauge(None).function_bytes_max({}) == 0


def test_a_process_beside_the_host_may_use_what_that_has_left_for_a_function() -> None:
    used = memory_gauge.used_bytes()
    most = MemoryGauge(None).trial_bytes_max({"memory_bytes_max": 1_024 * MIB})
    assert abs(most - (4_096 * MIB - used)) < 64 * MIB
    assert MemoryGauge(MIB).trial_bytes_max({}) == memory_gauge.TRIAL_BYTES_MIN
    assert MemoryGauge(None).trial_bytes_max({}) >= memory_gauge.TRIAL_BYTES_MIN
