"""Detection under chance: worlds in which anything happens, and what must hold in each of them."""

from collections.abc import Callable, Iterator
from itertools import accumulate

from detection_world import RULES, Change, Round, Team, World, play
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle.coordination import Driver
from rekindle_operator.detection import node_detector
from rekindle_operator.detection.detection_events import (
    DetectionEvent,
    DetectionKind,
    DetectionReason,
)
from rekindle_operator.detection.detection_input import READY

NAMES = ("n1", "n2", "n3", "n4")
PERIOD = RULES.period_seconds
MOMENT = 1e-6
LOSSES = (DetectionKind.CONFIRMED, DetectionKind.DEPARTED)
CONDITIONS = st.sampled_from(("True", "False", "Unknown"))
TAINTS = st.sampled_from(((), ("karpenter.sh/disrupted",), ("node.kubernetes.io/unreachable",)))
# Kubelets add up to 4 % to the interval.
INTERVALS = st.floats(10.0, 10.4)
Action = tuple[float, Change]


def replace_machine(world: World, name: str) -> None:
    if name in world.machines:
        world.delete(name)
    world.add(name, phase=2.0)


def if_there(act: Callable[[World, str], object], name: str) -> Change:
    return lambda world: act(world, name) if name in world.machines else None


def on_machines(names: tuple[str, ...]) -> st.SearchStrategy[Change]:
    """Something that happens to one machine, to its Node object, or to its lease."""
    name = st.sampled_from(names)
    acts = st.one_of(
        st.just(World.lose),
        st.just(World.restore),
        st.just(World.delete),
        st.just(replace_machine),
        st.just(lambda world, n: setattr(world.machines[n], "kubelet", False)),
        st.booleans().map(lambda on: lambda world, n: setattr(world.machines[n], "leased", on)),
        st.booleans().map(lambda on: lambda world, n: world.change(n, unschedulable=on)),
        CONDITIONS.map(lambda word: lambda world, n: world.change(n, ready=word)),
        TAINTS.map(lambda taints: lambda world, n: world.change(n, taints=taints)),
    )
    return st.builds(if_there, acts, name)


def on_drivers() -> st.SearchStrategy[Change]:
    """Something that a driver does or says, or where it has executors."""
    words = st.one_of(
        st.none(), st.dictionaries(st.sampled_from(NAMES), st.floats(0.0, 100.0), max_size=4)
    )
    return st.one_of(
        _set("driver", st.sampled_from(list(Driver))),
        _set("said_seconds_ago", st.floats(0.0, 20.0)),
        _set("executors", st.sets(st.sampled_from((*NAMES, "n9")))),
        _set("word", words),
    )


def _set(field: str, values: st.SearchStrategy[object]) -> st.SearchStrategy[Change]:
    return values.map(lambda value: lambda world: setattr(world.teams["a"], field, value))


def on_requests() -> st.SearchStrategy[Change]:
    """Our requests fail, or succeed again."""
    fields = st.sampled_from(("sees", "lists", "empty_list"))
    return st.builds(lambda f, on: lambda world: setattr(world, f, on), fields, st.booleans())


def on_renewals() -> st.SearchStrategy[Change]:
    """No kubelet can renew, or all can again."""
    return st.booleans().map(lambda on: lambda world: setattr(world, "writable", on))


def scripts(changes: st.SearchStrategy[Change]) -> st.SearchStrategy[list[Action]]:
    """Changes over three minutes, in order."""
    pairs = st.lists(st.tuples(st.floats(0.0, 180.0), changes), max_size=25)
    return pairs.map(lambda actions: sorted(actions, key=lambda action: action[0]))


def moments(longest: float, *, shortest: float = 0.5) -> st.SearchStrategy[list[float]]:
    """Moments of rounds, for up to three minutes."""
    pauses = st.lists(st.floats(shortest, longest), min_size=10, max_size=40)
    return pauses.map(lambda those: list(accumulate(those, initial=0.0)))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Four machines that renew when they like, and team `a` with executors on some of them."""
    world = World()
    for name in NAMES:
        phase, interval = draw(st.floats(0.0, 10.0)), draw(INTERVALS)
        world.add(name, phase=phase, renewed_at=phase - 10.0, interval=interval)
    world.teams["a"] = Team(draw(st.sets(st.sampled_from(NAMES), min_size=1)))
    return world


ANYTHING = st.one_of(on_machines(NAMES), on_drivers(), on_requests(), on_renewals())


def losses(turn: Round) -> Iterator[DetectionEvent]:
    return (verdict for verdict in turn.verdicts if verdict.kind in LOSSES)


@given(
    worlds(),
    scripts(
        st.one_of(
            on_machines(NAMES[1:]),
            on_drivers(),
            on_requests(),
            CONDITIONS.map(lambda word: lambda world: world.change("n1", ready=word)),
        )
    ),
    moments(15.0),
)
def test_a_node_whose_lease_keeps_changing_gets_no_verdict_whatever_else_happens(
    world: World, script: list[Action], rounds: list[float]
) -> None:
    for turn in play(world, script, rounds):
        assert "n1" not in {verdict.node for verdict in turn.verdicts}


@given(worlds(), scripts(ANYTHING), moments(15.0))
def test_after_a_gap_or_a_hold_nothing_is_confirmed_before_a_full_period(
    world: World, script: list[Action], rounds: list[float]
) -> None:
    began_at, looked_at = 0.0, None
    for turn in play(world, script, rounds):
        if turn.observation.leases is not None:
            if looked_at is None or turn.at - looked_at > RULES.gap_seconds:
                began_at = turn.at
            looked_at = turn.at
        if any(verdict.kind is DetectionKind.RELEASED for verdict in turn.verdicts):
            began_at = turn.at
        for _ in losses(turn):
            assert looked_at is not None
            assert looked_at - began_at >= PERIOD - MOMENT
            assert turn.at - looked_at <= RULES.gap_seconds


@given(worlds(), scripts(ANYTHING), moments(15.0))
def test_while_it_is_held_nothing_is_confirmed(
    world: World, script: list[Action], rounds: list[float]
) -> None:
    for turn in play(world, script, rounds):
        if turn.after.held_at is not None:
            assert not [*losses(turn)]
        kinds = [verdict.kind for verdict in turn.verdicts]
        changed = (turn.before.held_at is None) != (turn.after.held_at is None)
        assert (DetectionKind.HELD in kinds or DetectionKind.RELEASED in kinds) == changed


@given(worlds(), scripts(ANYTHING), moments(15.0), st.floats(0.0, 60.0))
def test_the_same_observation_again_changes_nothing(
    world: World, script: list[Action], rounds: list[float], later: float
) -> None:
    for turn in play(world, script, rounds):
        for at in (turn.at, turn.at + later):
            assert node_detector.detect(turn.after, turn.observation, at, RULES) == (turn.after, ())


@given(worlds(), scripts(ANYTHING), moments(12.0))
def test_every_loss_is_true_as_far_as_anybody_could_know(
    world: World, script: list[Action], rounds: list[float]
) -> None:
    for turn in play(world, script, rounds):
        for verdict in losses(turn):
            assert verdict.node is not None
            machine = world.machines.get(verdict.node)
            shown = None if world.empty_list else machine
            if verdict.reason is DetectionReason.NODE_DELETED:
                assert shown is None
            elif verdict.reason is DetectionReason.NODE_REPLACED:
                assert machine is None or machine.node.uid != verdict.uid
            elif verdict.application is not None and shown and shown.node.uid == verdict.uid:
                assert shown.renewed_at is None or shown.renewed_at <= turn.at - PERIOD + MOMENT
                assert_evidence(turn, verdict)


def assert_evidence(turn: Round, verdict: DetectionEvent) -> None:
    """Beside its lease, the driver's word or the lack of a driver speaks against the node."""
    assert verdict.node is not None
    assert verdict.application is not None
    view = turn.after.applications[verdict.application]
    if view.driver is Driver.THERE:
        assert view.silent_seconds[verdict.node] >= RULES.driver_silence_seconds
        assert view.said_seconds_ago <= RULES.word_seconds_max
    else:
        assert view.driver is Driver.GONE
        assert turn.after.nodes[verdict.node].ready != READY


@given(worlds(), scripts(ANYTHING), moments(12.0))
def test_every_node_goes_the_ways_that_are_drawn_and_nobody_is_told_twice(
    world: World, script: list[Action], rounds: list[float]
) -> None:
    suspects, told = set[tuple[str, str]](), set[tuple[str, str | None]]()
    for turn in play(world, script, rounds):
        for verdict in turn.verdicts:
            if verdict.node is None:
                continue
            machine = (verdict.node, str(verdict.uid))
            addressee = (verdict.node, verdict.application)
            if verdict.kind is DetectionKind.SUSPECTED:
                assert machine not in suspects
                suspects.add(machine)
            elif verdict.kind is DetectionKind.CLEARED:
                suspects.remove(machine)
            elif verdict.kind is DetectionKind.RETURNED:
                told.remove(addressee)
            else:
                assert addressee not in told
                told.add(addressee)
        told = {item for item in told if item[0] in turn.after.told}


@given(
    worlds(),
    st.floats(20.0, 60.0),
    st.floats(0.0, 1.0),
    moments(5.0, shortest=4.0),
)
def test_a_lease_that_stops_with_a_silent_driver_is_a_loss_within_the_limit(
    world: World, dies_at: float, phase: float, rounds: list[float]
) -> None:
    """25 s after the last change that we saw, or at the first round after 15 s of silence."""
    for number, name in enumerate(NAMES):
        # Somebody renews between any two looks.
        machine = world.machines[name]
        machine.due_at, machine.interval = number * 10.0 / 3 + phase, 10.0
    world.teams["a"] = Team({"n1"})
    rounds = [at for at in rounds if at <= 180.0]
    found, seen_at = None, 0.0
    for turn in play(world, [(dies_at, lambda w: w.lose("n1"))], rounds):
        if turn.after.timers.since["n1"] == turn.at:
            seen_at = turn.at
        if any(verdict.kind is DetectionKind.CONFIRMED for verdict in turn.verdicts):
            found = turn.at
            break
    limit = max(seen_at + 25.0, dies_at + 20.0)
    if rounds[-1] >= limit:
        assert found is not None
        assert max(seen_at + 20.0, dies_at + 15.0) - MOMENT <= found <= limit + MOMENT


@given(worlds(), st.floats(0.0, 100.0), moments(5.0, shortest=1.0))
def test_when_all_machines_fall_silent_nobody_is_ever_lost(
    world: World, dies_at: float, rounds: list[float]
) -> None:
    """In whatever order their leases stop, and though no driver hears anything."""
    script: list[Action] = [(dies_at, lambda w: w.lose(*NAMES))]
    for turn in play(world, script, [*rounds, *(rounds[-1] + 4.0 * n for n in range(1, 40))]):
        assert not [*losses(turn)]
    assert turn.after.held_at is not None


@settings(max_examples=50)
@given(worlds(), st.floats(0.0, 60.0), st.floats(0.0, 90.0), moments(5.0, shortest=2.0))
def test_an_outage_of_the_api_server_gives_no_loss_though_renewals_come_back_staggered(
    world: World, begins_at: float, seconds: float, rounds: list[float]
) -> None:
    """No renewal gets through and no driver hears anything, until the server is back."""
    words = dict.fromkeys(NAMES, 99.0)

    def begin(w: World) -> None:
        w.writable, w.sees, w.teams["a"].word = False, False, words

    def end(w: World) -> None:
        w.writable, w.sees, w.teams["a"].word = True, True, None

    script: list[Action] = [(begins_at, begin), (begins_at + seconds, end)]
    for turn in play(world, script, [*rounds, *(rounds[-1] + 5.0 * n for n in range(1, 30))]):
        assert not [*losses(turn)]
