"""What the names of files in a store say, also after years of short epochs."""

import pytest

from rekindle_store import checkpoint_records


@pytest.mark.parametrize("epoch", [1, 999_999_999, 1_000_000_000, 20_000_000_000])
def test_rows_that_wait_for_a_branch_are_known_by_their_name_at_any_epoch(epoch: int) -> None:
    name = f"outputs/odd~branch/3-{epoch:09d}.parquet"
    assert checkpoint_records.waiting_rows(name) == (3, epoch)
    assert checkpoint_records.is_read_no_more(name, epoch)
    assert not checkpoint_records.is_read_no_more(name, epoch - 1)
