"""What reports take on a disk: the formula, and the chart's settings and sizes that it is for."""

import re
from pathlib import Path

import pytest
import yaml

from rekindle_bench import store_disk
from rekindle_bench.store_disk import GIB, Rates, claim_bytes, computed, disk_bytes
from rekindle_local.local_zookeeper import SETTINGS
from rekindle_spark.control import coordinator_client

ROOT = Path(__file__).parents[4]
CHART = ROOT / "charts" / "rekindle"


def settings() -> dict[str, str]:
    text = (CHART / "templates" / "zookeeper" / "configuration.yaml").read_text()
    return dict(re.findall(r"^    ([A-Za-z0-9.]+)=(\S+)$", text, re.MULTILINE))


def test_the_formula_is_of_the_charts_settings() -> None:
    found = settings()
    assert int(found["snapSizeLimitInKb"]) << 10 == store_disk.LOG_BYTES
    assert int(found["preAllocSize"]) << 10 == store_disk.PREALLOCATED_BYTES
    assert int(found["autopurge.snapRetainCount"]) == store_disk.SNAPSHOTS_KEPT
    assert found["autopurge.purgeInterval"] == "1"
    assert found["snapshot.compression.method"] == "gz"
    assert coordinator_client.REPORT_SECONDS == store_disk.PROGRESS_SECONDS
    assert coordinator_client.STATISTICS_SECONDS == store_disk.STATISTICS_SECONDS


@pytest.mark.parametrize("name", ["snapCount", "snapSizeLimitInKb", "snapshot.compression.method"])
def test_local_servers_write_as_the_charts_do(name: str) -> None:
    assert str(SETTINGS[name]) == settings()[name]


def test_a_disk_holds_an_hour_and_what_is_kept_and_a_snapshot_for_each_log() -> None:
    still = Rates(hour_bytes=0.0, snapshot_bytes=1e6)
    assert disk_bytes(still) == 4 * (128 + 16) * 2**20 + 4e6
    busy = Rates(hour_bytes=64 * 2.0**20, snapshot_bytes=1e6)
    assert disk_bytes(busy) - disk_bytes(still) == 64 * 2**20 + 1e6
    assert claim_bytes(busy) == 2 * disk_bytes(busy)


def test_the_claims_of_the_page_are_twice_what_applications_take() -> None:
    page = (ROOT / "docs" / "zookeeper.md").read_text()
    rows = re.findall(r"^\| (?:up to )?([\d,]+) \| `(\d+)Gi`", page, re.MULTILINE)
    claims = {int(count.replace(",", "")): int(size) for count, size in rows}
    assert set(claims) == {200, 500, 1000}
    for applications, gigabytes in claims.items():
        wanted = claim_bytes(computed(applications, 50)) / GIB
        assert wanted <= gigabytes <= 1.3 * wanted, applications
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["zookeeper"]["storage"]["size"] == f"{claims[200]}Gi"
