"""Whatever happens to operator, provider and clock: limits hold, and no node is asked for twice."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from provider_world import AUTOSCALER, FLIGHTS, KARPENTER, MACHINES, WEATHER, World, lost

AT_ONCE, PER_INCIDENT = 4, 6
BOUND = {"nodesAtOnceMax": AT_ONCE, "backOffSeconds": 5}

# What may happen between two looks; numbers choose among what is there.
EVENTS = st.one_of(
    st.tuples(st.just("look"), st.integers(0, 9)),
    st.tuples(st.just("want"), st.integers(0, 8)),
    st.tuples(st.just("missing"), st.integers(0, 8)),
    st.tuples(st.just("arrive"), st.integers(0, 9)),
    st.tuples(st.just("vanish"), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([1, 20, 1_000])),
    st.tuples(st.just("forget"), st.just(0)),
    st.tuples(st.just("idle"), st.integers(0, 9)),
    st.tuples(st.just("settle"), st.just(0)),
)


def happen(world: World, kind: str, number: int) -> None:
    claims, requests = world.all("NodeClaim"), world.all("ProvisioningRequest")
    objects = [*claims, *requests]
    chosen = objects[number % len(objects)] if objects else None
    if kind == "look":
        world.round(kill_after=number)
    elif kind == "want":
        world.want(requests={"1-nodes-8": lost(number)} if number else {})
    elif kind == "missing":
        world.want(requests={"1-nodes-8": lost(8)}, missing=number)
    elif kind == "settle":
        world.settle()
    elif kind == "wait":
        world.now += number
    elif kind == "forget" and world.all("ConfigMap"):
        world.remove(world.all("ConfigMap")[0])
    elif kind == "idle" and world.nodes:
        world.idle[sorted(world.nodes)[number % len(world.nodes)]] = 1_000.0
    elif chosen is not None:
        befall(world, kind, chosen)


def befall(world: World, kind: str, chosen: dict[str, Any]) -> None:
    """What its provider does to a request."""
    if kind == "vanish":
        world.remove(chosen)
    elif kind == "fail":
        world.say(chosen, "Failed")
    elif kind == "arrive" and chosen["kind"] == "ProvisioningRequest":
        world.say(chosen, "Provisioned")
        world.join(f"node-{len(world.nodes)}")
    elif kind == "arrive" and "nodeName" not in chosen.get("status", {}):
        for type_ in ("Registered", "Initialized"):
            world.say(chosen, type_)
        chosen["status"]["nodeName"] = f"node-{len(world.nodes)}"
        world.join(f"node-{len(world.nodes)}")


@settings(max_examples=60)
@example([("wait", 1_000), ("look", 6), ("forget", 0)])
@given(st.lists(EVENTS, max_size=40))
def test_limits_hold_after_every_step_and_in_the_end_nothing_is_left(
    events: list[tuple[str, int]],
) -> None:
    world = World(
        {**KARPENTER, "limits": BOUND},
        {**AUTOSCALER, "limits": BOUND},
        nodes_per_incident_max=PER_INCIDENT,
        nodes_at_once_max=AT_ONCE,
    )
    world.want(requests={"1-nodes-8": lost(8)})
    for kind, number in events:
        in_use = used(world)
        happen(world, kind, number)
        if kind == "look":
            assert in_use <= used(world), "a node in use was taken away"
        if kind == "settle":
            check_limits(world)
    world.settle()
    assert world.round().actions == ()
    world.want(over=True)
    world.idle = dict.fromkeys(world.nodes, 10_000.0)
    world.now += 10_000
    world.settle()
    assert world.objects == {}


def check_limits(world: World) -> None:
    """What is on its way is within all bounds, and each row of it is an object."""
    rows = world.settle().requests[FLIGHTS] or ()
    demand = world.demands[FLIGHTS]
    coming = [row for row in rows if row.outcome == "Pending"]
    live = [row for row in rows if row.outcome in ("Pending", "Arrived")]
    wanted = sum(request.count for request in demand.requests.values())
    assert len(coming) <= AT_ONCE
    assert len(live) <= PER_INCIDENT
    assert not coming or len(live) <= wanted
    made = {place[2] for place in world.objects if place[0] != "ConfigMap"}
    assert {row.name for row in coming} <= made


def used(world: World) -> set[str]:
    """Nodes of claims that are there and not idle."""
    names = {body.get("status", {}).get("nodeName", "") for body in world.all("NodeClaim")}
    return {name for name in names if name and name not in world.idle}


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from([FLIGHTS, WEATHER]), st.integers(0, 6)), max_size=12))
def test_a_machine_deployment_has_exactly_what_was_lost_more_whenever_the_operator_is_killed(
    steps: list[tuple[Any, int]],
) -> None:
    world = World(MACHINES)
    deployment = world.deployment(replicas=3)
    world.now += 60
    for incident, kill_after in steps:
        world.want(incident, requests={"1-nodes-2": lost(2)})
        world.round(kill_after)
        world.reconcile(deployment)
        world.now += 1
    incidents = {incident for incident, _ in steps}
    for _ in range(12):
        world.round()
        world.reconcile(deployment)
    assert deployment["spec"]["replicas"] == 3 + 2 * len(incidents)
