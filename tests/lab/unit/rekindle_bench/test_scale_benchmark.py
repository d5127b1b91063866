"""What the sizes of `rekindle bench scale` come to: bars."""

from pathlib import Path

import pytest

from rekindle_bench import scale_benchmark
from rekindle_bench.scale_benchmark import ScaleSize


def size(partitions: int, job: float, epoch: float, driver: float) -> ScaleSize:
    return ScaleSize(partitions // 10, partitions, job, epoch, driver, driver / 2, 1.0, 1.0)


@pytest.mark.parametrize(
    ("partitions", "job", "epoch", "driver", "met"),
    [
        (1_000, 0.5, 1.0, 2.2, [True, True]),
        (1_000, 0.5, 1.04, 2.3, [True, False]),
        (1_000, 0.9, 1.2, 2.0, [False, True]),  # the time between jobs counts
        (1_000, 1.1, 1.0, 2.0, [False, True]),
        (2_000, 0.5, 1.0, 4.8, [True, True]),  # by doubling: two of them
        (2_000, 0.5, 1.0, 4.9, [True, False]),
    ],
)
def test_bars(
    tmp_path: Path, partitions: int, job: float, epoch: float, driver: float, met: list[bool]
) -> None:
    sizes = [size(500, 0.1, 1.0, 1.0), size(partitions, job, epoch, driver)]
    found = scale_benchmark._judge(sizes, partitions, 10, tmp_path)
    assert [row["met"] for row in found["bars"]] == met
