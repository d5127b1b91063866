"""Which applications that run make room for one that waits and matters more."""

import itertools
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rekindle_operator.applications.application_plan import (
    ApplicationDemand,
    PlanSolver,
    PodDemand,
    PodHeld,
    plan,
    upstream,
)
from rekindle_operator.applications.displacement import (
    Displacement,
    NotInTime,
    RoomMade,
    choose,
)

SOLVER = PlanSolver(time.monotonic)


def running(
    name: str, priority: float, *held: tuple[str, int], keeps: int = 1, **fields: object
) -> ApplicationDemand:
    """An application that runs, with executors on these nodes (thousandths of a core), the oldest
    first."""
    return ApplicationDemand(
        name,
        priority,
        running=len(held),
        driver_runs=True,
        minimum=0,
        held=tuple(PodHeld(f"{name}/{index}", *it) for index, it in enumerate(held)),
        keeps=keeps,
        executor_millis=1_000,
        **fields,  # type: ignore[arg-type]
    )


def waiting(name: str, priority: float, *executors: int, **fields: object) -> ApplicationDemand:
    """An application of which all executors wait, without any of which it is of no use."""
    return ApplicationDemand(
        name,
        priority,
        executors=tuple(PodDemand(f"{name}-{index}", it) for index, it in enumerate(executors)),
        driver_runs=True,
        minimum=len(executors),
        keeps=len(executors),
        executor_millis=executors[0],
        **fields,  # type: ignore[arg-type]
    )


def goes(by: str, **indices: Iterable[int]) -> Displacement:
    """The executors of these indices make room."""
    return Displacement(
        by, {name: frozenset(f"{name}/{it}" for it in its) for name, its in indices.items()}
    )


def chosen(
    nodes: Mapping[str, int],
    *applications: ApplicationDemand,
    before: RoomMade | None = None,
    may_run: Iterable[str] | None = None,
) -> Displacement | NotInTime | None:
    known = {item.name: item for item in applications}
    where = frozenset(nodes if may_run is None else may_run)
    made = plan(applications, nodes, SOLVER)
    return choose(known, made, before or RoomMade(), lambda _: where, SOLVER)


def test_the_least_important_one_makes_room() -> None:
    found = chosen(
        {"a": 0, "b": 0},
        running("low", 1, ("a", 2_000)),
        running("middle", 5, ("b", 2_000)),
        waiting("high", 9, 2_000),
    )
    assert found == goes("high", low=[0])


def test_nothing_makes_room_for_what_matters_no_more() -> None:
    assert chosen({"a": 0}, running("one", 5, ("a", 2_000)), waiting("other", 5, 2_000)) is None
    wide = running("wide", 9, ("a", 1_000), ("a", 1_000))
    assert chosen({"a": 0}, wide, waiting("other", 5, 1_000)) is None, "also beyond its minimum"


def test_what_makes_room_matters_less_together() -> None:
    nodes = {"a": 0}
    lows = [running(f"low{number}", 4, ("a", 1_000)) for number in range(3)]
    assert chosen(nodes, *lows, waiting("high", 9, 3_000)) is None
    assert chosen(nodes, *lows, waiting("high", 13, 3_000)) == goes(
        "high", low0=[0], low1=[0], low2=[0]
    )


def test_no_more_makes_room_than_is_needed() -> None:
    lows = [running(f"low{number}", 1, ("a", 1_000)) for number in range(4)]
    found = chosen({"a": 1_000}, *lows, waiting("high", 9, 3_000))
    assert isinstance(found, Displacement)
    assert len(found.goes) == 2


def test_executors_beyond_a_minimum_go_first() -> None:
    found = chosen(
        {"a": 0},
        running("low", 1, ("a", 1_000)),
        running("wide", 5, ("a", 1_000), ("a", 1_000), ("a", 1_000), keeps=2),
        waiting("high", 9, 1_000),
    )
    assert found == goes("high", wide=[2])


def test_no_more_executors_go_than_are_needed_and_none_where_no_pod_may_run() -> None:
    wide = running("wide", 5, *[("a", 1_000), ("z", 1_000)] * 10, keeps=2)
    nodes = {"a": 0, "z": 0}
    assert chosen(nodes, wide, waiting("high", 9, 1_000), may_run="a") == goes("high", wide=[18])
    found = chosen(nodes, wide, waiting("high", 9, 1_000, 2_000), may_run="a")
    assert found == goes("high", wide=[14, 16, 18])


def test_which_executors_go_depends_on_the_node_and_not_on_their_age() -> None:
    one = running("one", 5, ("a", 1_000), *[("z", 1_000)] * 5)
    assert chosen({"a": 0, "z": 0}, one, waiting("high", 9, 1_000), may_run="a") == goes(
        "high", one=[0]
    )
    two = running("two", 5, ("a", 1_000), ("a", 1_000), ("z", 1_000), ("z", 500), keeps=2)
    assert chosen({"a": 0, "z": 0}, two, waiting("high", 9, 2_000)) == goes("high", two=[0, 1])


def test_of_what_is_of_no_use_no_more_goes_than_is_needed() -> None:
    broken = replace(running("broken", 5, ("a", 1_000), ("z", 1_000)), minimum=3, keeps=3)
    assert chosen({"a": 0, "z": 0}, broken, waiting("high", 9, 1_000), may_run="a") == goes(
        "high", broken=[0]
    )


def test_what_has_got_none_back_gives_further_executors() -> None:
    low = running("low", 1, *[("a", 1_000)] * 4)
    high = waiting("high", 9, 1_000)
    assert chosen({"a": 0}, low, high, before=RoomMade({"low": 4})) == goes("high", low=[3])


def test_one_that_is_enough_goes_where_the_least_important_ones_are_not() -> None:
    found = chosen(
        {"a": 0},
        running("x1", 1, ("a", 100)),
        running("x2", 2, ("a", 100)),
        running("big", 7, ("a", 2_000)),
        waiting("high", 9, 2_000),
    )
    assert found == goes("high", big=[0])


def test_a_choice_that_is_not_made_in_time_is_not_taken_for_none() -> None:
    low, high = running("low", 1, ("a", 1_000)), waiting("high", 9, 1_000)
    made = plan((low, high), {"a": 0}, SOLVER)
    ticks = itertools.count()
    slow = PlanSolver(lambda: float(next(ticks)))
    known = {"low": low, "high": high}
    assert choose(known, made, RoomMade(), lambda _: {"a"}, slow) == NotInTime("high")


def test_an_application_goes_whole_where_its_minimum_is_in_the_way() -> None:
    wide = running("wide", 5, ("a", 1_000), ("a", 1_000), ("a", 1_000), keeps=2)
    assert chosen({"a": 0}, wide, waiting("high", 9, 2_000)) == goes("high", wide=range(3))


def test_what_is_of_no_use_as_it_is_goes_first() -> None:
    broken = replace(running("broken", 5, ("a", 1_000)), minimum=3, keeps=3)
    low = running("low", 1, ("a", 1_000))
    assert chosen({"a": 0}, low, broken, waiting("high", 9, 1_000)) == goes("high", broken=[0])


def test_what_the_plan_brings_back_makes_room_with_what_it_would_get() -> None:
    """Otherwise it would start now and stop in a moment."""
    half = replace(
        running("half", 1, ("a", 1_000)),
        minimum=2,
        keeps=2,
        executors=(PodDemand("half-1", 1_000),),
    )
    found = chosen({"a": 1_000}, half, waiting("high", 9, 2_000))
    assert found == goes("high", half=[0])


def test_nothing_goes_on_which_another_depends() -> None:
    ingest = running("ingest", 1, ("a", 1_000))
    reports = running("reports", 2, ("b", 1_000), depends_on=("ingest",))
    nodes = {"a": 0, "b": 0}
    assert chosen(nodes, ingest, reports, waiting("high", 9, 1_000), may_run="a") is None
    # the other one has gone whole
    gone, absent = RoomMade({"reports": 0}), replace(reports, held=(), running=0)
    assert chosen(
        nodes, ingest, absent, waiting("high", 9, 1_000), may_run="a", before=gone
    ) == goes("high", ingest=[0])
    again = replace(reports, priority=8)
    high = waiting("high", 9, 1_000)
    assert chosen(nodes, ingest, again, high, may_run="a", before=gone) is None, "it has come back"
    back = replace(absent, executors=(PodDemand("reports/2", 1_000),), minimum=1)
    free = {"a": 0, "b": 1_000}
    assert chosen(free, ingest, back, high, may_run="a", before=gone) is None, "it comes back"
    needs = waiting("high", 9, 1_000, depends_on=("ingest",))
    assert chosen(nodes, ingest, needs) is None


def test_nothing_goes_for_pods_that_spark_has_not_made() -> None:
    later = replace(waiting("high", 9, 1_000), executors=())
    assert chosen({"a": 0}, running("low", 1, ("a", 1_000)), later) is None


def test_nothing_goes_where_it_would_not_help() -> None:
    low = running("low", 1, ("a", 1_000))
    assert chosen({"a": 0}, low, waiting("high", 9, 2_000)) is None
    assert chosen({"a": 0, "b": 0}, low, waiting("high", 9, 1_000), may_run="b") is None


def test_what_went_whole_does_not_go_again_and_what_kept_its_minimum_goes_whole() -> None:
    low = running("low", 1, ("a", 1_000), ("a", 1_000))
    high = waiting("high", 9, 1_000)
    assert chosen({"a": 0}, low, high, before=RoomMade({"low": 0})) is None
    assert chosen({"a": 0}, low, high, before=RoomMade({"low": 1})) == goes("high", low=[0, 1]), (
        "it has got one back"
    )


def test_no_more_is_chosen_for_one_for_which_room_is_being_made() -> None:
    low = running("low", 1, ("a", 1_000))
    before = RoomMade(made=frozenset({"high"}))
    assert chosen({"a": 0}, low, waiting("high", 9, 1_000), before=before) is None


NODES = ("a", "b", "c")
SIZES = st.sampled_from((500, 1_000, 2_000))
PRIORITIES = st.integers(1, 6)
UPSTREAM = st.lists(st.sampled_from([f"r{it}" for it in range(4)]), max_size=1).map(tuple)
RUNNING = st.tuples(
    PRIORITIES,
    st.lists(st.tuples(st.sampled_from(NODES), SIZES), min_size=1, max_size=4),
    st.integers(0, 3),
    st.booleans(),
    UPSTREAM,
)
WAITING = st.tuples(PRIORITIES, st.lists(SIZES, min_size=1, max_size=3), UPSTREAM)
WORLDS = st.tuples(
    st.lists(RUNNING, min_size=1, max_size=4),
    st.lists(WAITING, min_size=1, max_size=3),
    st.fixed_dictionaries({node: st.sampled_from((0, 500, 1_000)) for node in NODES}),
    st.dictionaries(st.sampled_from([f"r{it}" for it in range(4)]), st.integers(0, 1), max_size=2),
    st.frozensets(st.sampled_from(NODES), min_size=1),
)


def drawn(runs: list, waits: list) -> dict[str, ApplicationDemand]:  # type: ignore[type-arg]
    """Applications of which some lost executors, and are of use or not."""
    found = [
        replace(
            running(f"r{number}", priority, *held, keeps=keeps, depends_on=needs),
            minimum=keeps if affected else 0,
        )
        for number, (priority, held, keeps, affected, needs) in enumerate(runs)
    ]
    found += [
        waiting(f"w{number}", priority, *sizes, depends_on=needs)
        for number, (priority, sizes, needs) in enumerate(waits)
    ]
    return {item.name: item for item in found}


def assert_sound(
    known: Mapping[str, ApplicationDemand],
    nodes: Mapping[str, int],
    before: RoomMade,
    may_run: frozenset[str],
) -> None:
    made = plan(known.values(), nodes, SOLVER)
    found = choose(known, made, before, lambda _: may_run, SOLVER)
    if not isinstance(found, Displacement):
        return
    high = known[found.by]
    assert found.by in made.skipped
    assert not found.goes.keys() & upstream(found.by, known)
    harm, after = 0.0, dict(known)
    room = {node: round(percent * 10) for node, percent in made.left.items()}
    for name in made.chosen:  # they are admitted at once
        after[name] = replace(known[name], executors=(), running=known[name].minimum)
    for name, gone in found.goes.items():
        low = known[name]
        stay = tuple(pod for pod in low.held if pod.uid not in gone)
        assert low.priority < high.priority, "never one that matters more"
        assert before.kept.get(name) != 0, "never twice"
        assert 0 < len(gone) == len(low.held) - len(stay)
        works = low.is_of_use or name in made.chosen
        # never below its minimum by accident
        assert not stay or not works or (low.is_of_use and len(stay) >= low.keeps)
        if not stay and works:
            harm += low.priority
        if stay:
            assert all(pod.node in may_run for pod in low.held if pod.uid in gone)
        for item in known.values():
            if item is not low and name in item.depends_on:
                assert before.kept.get(item.name) == 0, "nothing goes on which another depends"
                assert not item.held
                assert item.name not in made.chosen
        for pod in low.held:
            if pod.uid in gone:
                room[pod.node] += pod.cpu_millis
        for pod in made.placed_of(low) if name in made.chosen else ():
            room[pod.node] += pod.cpu_millis
        after[name] = replace(low, running=len(stay), minimum=low.keeps, held=stay)
    assert harm < high.priority, "together they matter less"
    assert found.by in plan(after.values(), room, SOLVER, {found.by}).chosen, "not in vain"


@given(WORLDS)
def test_what_makes_room_is_sound_whatever_runs(world: tuple) -> None:  # type: ignore[type-arg]
    runs, waits, nodes, kept, may_run = world
    assert_sound(drawn(runs, waits), nodes, RoomMade(kept), may_run)
