"""What an important query feels of functions that end their process."""

import pytest

from rekindle_bench import harmful_functions


def commit(
    at: float, first: int, last: int, index: int, query: str = "important"
) -> dict[str, object]:
    fields = {"query": query, "query_partition": f"{query}/{index}", "at": at}
    return {"kind": "commit", "from_epoch": first, "epoch": last, **fields}


def test_an_epoch_is_late_by_its_last_partition_and_unfinished_ones_do_not_count() -> None:
    cuts = [{"kind": "cut", "epoch": n, "cut_at": 10.0 * n} for n in (1, 2, 3)]
    commits = [
        commit(10.5, 1, 1, 0),
        commit(11.0, 1, 1, 1, "query-loop"),
        commit(24.0, 1, 2, 1),
        commit(23.0, 2, 2, 0),
        commit(30.5, 3, 3, 0),
    ]
    assert harmful_functions.lags([*cuts, *commits]) == {10.0: 14.0, 20.0: 4.0}


def test_an_epoch_that_runs_again_was_committed_when_it_first_was() -> None:
    cut = {"kind": "cut", "epoch": 1, "cut_at": 10.0}
    commits = [commit(11.0, 1, 1, 0), commit(12.0, 1, 1, 1), commit(40.0, 1, 1, 1)]
    assert harmful_functions.lags([cut, *commits]) == {10.0: 2.0}


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert harmful_functions.percentile(values, 0.99) == 99.0
    assert harmful_functions.percentile([3.0], 0.99) == 3.0


@pytest.mark.parametrize("name", harmful_functions.FUNCTIONS)
def test_each_harm_is_a_function_that_can_be_read(name: str) -> None:
    code = "def " + harmful_functions.FUNCTION.format(
        name=name, harm=harmful_functions.FUNCTIONS[name]
    )
    compile(code, name, "exec")
