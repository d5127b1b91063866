"""Which pods of whole applications a plan admits."""

import time
from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from rekindle_operator.applications.application_plan import (
    ApplicationDemand,
    ApplicationPlan,
    PlanSolver,
    PodDemand,
    plan,
    reserve,
)

SOLVER = PlanSolver(time.monotonic)


def waiting(
    name: str, priority: float, *executors: int, driver: int | None = 1_000, **fields: object
) -> ApplicationDemand:
    """An application of which driver and executors (in thousandths of a core) wait."""
    pods = tuple(PodDemand(f"{name}-{number}", millis) for number, millis in enumerate(executors))
    return ApplicationDemand(
        name,
        priority,
        driver=None if driver is None else PodDemand(f"{name}-driver", driver),
        executors=pods,
        executor_millis=executors[0] if executors else 1_000,
        driver_runs=driver is None,
        **fields,  # type: ignore[arg-type]
    )


def planned(nodes: Mapping[str, int], *applications: ApplicationDemand) -> ApplicationPlan:
    return plan(applications, nodes, SOLVER)


def test_the_more_important_application_comes_first() -> None:
    made = planned({"a": 2_000}, waiting("low", 1, 1_000), waiting("high", 9, 1_000))
    assert made.chosen == ("high",)
    assert made.admitted == {"high-driver", "high-0"}
    assert made.skipped == {"low": "no-capacity"}
    assert made.waiting_millis == {"low": 2_000}
    assert made.text.startswith("Admit 1 of 2 waiting applications with 2 partitions")


def test_nothing_is_admitted_below_its_minimum() -> None:
    demand = waiting("orders", 5, 1_000, 1_000, 1_000, minimum=3)
    assert planned({"a": 3_000}, demand).admitted == frozenset()
    assert len(planned({"a": 4_000}, demand).admitted) == 4


def test_executors_that_spark_has_not_made_yet_keep_their_place() -> None:
    """The driver waits, and its executors are made when it runs."""
    demand = waiting("orders", 5, minimum=3)
    assert planned({"a": 3_000}, demand).admitted == frozenset()
    assert planned({"a": 4_000}, demand).admitted == {"orders-driver"}


def test_a_dependency_comes_with_what_depends_on_it() -> None:
    ingest, orders = (
        waiting("ingest", 1, 1_000),
        waiting("orders", 9, 1_000, depends_on=("ingest",)),
    )
    assert planned({"a": 3_000}, ingest, orders).chosen == ("ingest",)
    assert planned({"a": 4_000}, ingest, orders).chosen == ("orders", "ingest")


def test_a_cycle_of_dependencies_comes_together() -> None:
    one, other = (
        waiting("a", 1, 1_000, depends_on=("b",)),
        waiting("b", 1, 1_000, depends_on=("a",)),
    )
    assert planned({"n": 3_000}, one, other).chosen == ()
    assert planned({"n": 4_000}, one, other).chosen == ("a", "b")


def test_a_dependency_that_nobody_knows_is_passed_over() -> None:
    made = planned({"a": 2_000}, waiting("orders", 1, 1_000, depends_on=("elsewhere",)))
    assert made.chosen == ("orders",)


def test_further_executors_go_to_the_more_important_one() -> None:
    high = waiting("high", 9, 1_000, 1_000, driver=None, running=1)
    low = waiting("low", 1, 1_000, 1_000, driver=None, running=1)
    made = planned({"a": 3_000}, low, high)
    assert {"high-0", "high-1"} < made.admitted
    assert len(made.admitted) == 3


def test_no_executor_waits_for_a_minimum_that_runs_already() -> None:
    made = planned({"a": 1_000}, waiting("orders", 1, 1_000, driver=None, running=1, minimum=1))
    assert made.admitted == {"orders-0"}


def test_room_that_was_made_is_for_whom_it_was_made_and_for_what_matters_more() -> None:
    low, by, high = (
        waiting(name, priority, 1_000, driver=None)
        for name, priority in (("low", 1), ("by", 5), ("high", 9))
    )
    pair = waiting("pair", 5, 1_000, driver=None)

    def first(nodes: Mapping[str, int], *others: ApplicationDemand) -> tuple[str, ...]:
        return plan((by, *others), nodes, SOLVER, {"by"}).chosen

    assert first({"a": 1_000}, low, pair) == ("by",)
    assert first({"a": 1_000}, high) == ("high",)
    later = waiting("later", 9, driver=None)
    assert first({"a": 1_000}, later) == ("by",), "no pod of the other one is there"
    assert first({"a": 2_000}, low, pair, high) == ("high", "by")
    assert plan((low, by, high), {"a": 2_000}, SOLVER, {"by", "low"}).chosen == ("high", "by")


def test_without_nodes_everything_waits() -> None:
    assert planned({}, waiting("orders", 1, 1_000)).admitted == frozenset()


def test_pods_that_wait_for_the_scheduler_take_their_room_first() -> None:
    assert reserve({"a": 2_000, "b": 1_000}, (1_500, 4_000)) == {"a": 500, "b": 1_000}
    assert reserve({}, (1_000,)) == {}


SIZES = st.sampled_from((500, 1_000, 2_000))
DEMANDS = st.builds(
    lambda number, priority, sizes, driver, running, minimum, upstream: waiting(
        f"q{number}",
        priority,
        *sizes,
        driver=driver,
        running=running,
        minimum=minimum,
        depends_on=tuple(f"q{other}" for other in upstream),
    ),
    st.just(0),
    st.integers(1, 10),
    st.lists(SIZES, max_size=4),
    st.none() | SIZES,
    st.integers(0, 2),
    st.integers(0, 4),
    st.lists(st.integers(0, 4), max_size=2),
)
WORLDS = st.tuples(
    st.lists(DEMANDS, min_size=1, max_size=5),
    st.lists(st.sampled_from((500, 1_000, 3_000, 4_000)), max_size=4),
)


def renamed(demands: Iterable[ApplicationDemand]) -> list[ApplicationDemand]:
    """With a name, and names of pods, of their own."""
    return [
        ApplicationDemand(
            f"q{number}",
            item.priority,
            None if item.driver is None else PodDemand(f"q{number}-driver", item.driver.cpu_millis),
            tuple(
                PodDemand(f"q{number}-{index}", pod.cpu_millis)
                for index, pod in enumerate(item.executors)
            ),
            item.running,
            item.driver_runs,
            item.minimum,
            item.depends_on,
            item.driver_millis,
            item.executor_millis,
        )
        for number, item in enumerate(demands)
    ]


def assert_sound(demands: list[ApplicationDemand], nodes: dict[str, int]) -> None:
    made = planned(nodes, *demands)
    by_name = {item.name: item for item in demands}
    cost = {
        pod.uid: pod.cpu_millis
        for item in demands
        for pod in (*item.executors, *((item.driver,) if item.driver else ()))
    }
    assert made.admitted <= cost.keys()
    assert sum(cost[uid] for uid in made.admitted) <= sum(nodes.values())
    useful = {name for name, item in by_name.items() if item.is_of_use} | {*made.chosen}
    for item in demands:
        mine = {uid for uid in made.admitted if uid.startswith(f"{item.name}-")}
        if mine:
            # never below the minimum: all that is needed and made is admitted, or runs
            assert item.name in useful
            there = {part for part in item.needed() if part in cost}
            assert there <= made.admitted
        if item.name in made.chosen:
            assert {name for name in item.depends_on if name in by_name} <= useful
    for name in by_name.keys() - useful:
        assert_cannot_come(by_name[name], made, by_name, useful)


def assert_cannot_come(
    high: ApplicationDemand,
    made: ApplicationPlan,
    demands: Mapping[str, ApplicationDemand],
    useful: set[str],
) -> None:
    """No less important application of the same needs was chosen in its place."""
    if any(name in demands and name not in useful for name in high.depends_on):
        return
    needs = sorted(high.needed().values())
    for name in made.chosen:
        low = demands[name]
        others = [item for item in demands.values() if name in item.depends_on]
        if not others and sorted(low.needed().values()) == needs:
            assert low.priority >= high.priority


@given(WORLDS)
def test_plans_are_sound_whatever_waits(world: tuple[list[ApplicationDemand], list[int]]) -> None:
    demands, sizes = world
    assert_sound(renamed(demands), {f"n{number}": size for number, size in enumerate(sizes)})
