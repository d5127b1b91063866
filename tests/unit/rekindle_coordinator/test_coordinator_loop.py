"""The coordinator's shell over all applications: woken, timed, never stopped by one of them."""

import time

import msgspec
import pytest
from shell_world import Provider, World, settled

from rekindle import protocol
from rekindle.coordination import coordination_state, session
from rekindle.coordination.coordination_events import LossNotice
from rekindle.coordination.session import ApplicationReading
from rekindle.protocol import (
    DropOrder,
    NodeSeen,
    Orders,
    PauseOrder,
    PlanOrder,
    PriorityOverride,
    store_paths,
)
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_ports import DecisionTerms, Look
from rekindle_zookeeper import application_removal


def test_a_lost_node_leads_to_a_plan_in_the_store() -> None:
    world = World()
    coordinator = settled(world)
    assert not world.directives(world.member, PlanOrder)
    before = set(world.member.placement)
    world.lose(world.member, 0)
    lost = before - set(world.member.placement)
    coordinator.settle()
    (plan,) = world.directives(world.member, PlanOrder)
    assert lost == set(plan.order.placement)


def test_an_application_without_news_is_neither_read_nor_decided_about() -> None:
    world = World(applications=3)
    coordinator = settled(world)
    decisions = coordinator.decisions
    world.shared.reads.clear()
    world.now += 60
    coordinator.settle()
    assert (coordinator.decisions, world.shared.reads) == (decisions, {})


def test_news_wake_only_the_application_concerned_and_only_what_changed_is_read() -> None:
    world = World(applications=3)
    coordinator = settled(world)
    decisions = coordinator.decisions
    world.shared.reads.clear()
    world.fleet.report(world.member)
    coordinator.settle()
    assert coordinator.decisions == decisions + 1
    assert world.shared.reads == {world.member.place.path(store_paths.PROGRESS): 1}


def test_records_of_those_whose_turn_comes_next_are_read_ahead_once() -> None:
    world = World(applications=5)
    coordinator = settled(world)
    decisions = coordinator.decisions
    world.shared.reads.clear()
    for member in world.fleet.members:
        world.fleet.report(member)
    coordinator.shell.step()
    paths = {member.place.path(store_paths.PROGRESS) for member in world.fleet.members}
    assert (coordinator.decisions, world.shared.reads.keys()) == (decisions + 1, paths)
    coordinator.settle()
    assert coordinator.decisions == decisions + 5
    assert world.shared.reads == dict.fromkeys(paths, 1)


def test_a_record_that_changes_after_its_read_was_sent_is_read_again() -> None:
    world = World(applications=2)
    coordinator = settled(world)
    first, second = world.fleet.members
    for member in (first, second):
        world.fleet.report(member)
    coordinator.shell.step()
    world.lose(second, 0)
    coordinator.settle()
    assert world.directives(second, PlanOrder)


def test_a_read_that_could_not_be_sent_ahead_is_made_when_its_turn_comes() -> None:
    world = World(applications=2)
    coordinator = settled(world)
    coordinator.connection.silent = True
    for member in world.fleet.members:
        world.lose(member, 0)
    coordinator.shell.step()
    assert coordinator.shell.desks[world.fleet.members[1].place].records._sent
    coordinator.settle()
    assert all(world.directives(member, PlanOrder) for member in world.fleet.members)


def test_a_record_that_is_made_after_its_read_was_sent_is_read() -> None:
    world = World(applications=2)
    coordinator = settled(world)
    first, second = world.fleet.members
    records = coordinator.shell.desks[second.place].records
    records.mark([store_paths.ORDERS])
    for member in (first, second):
        coordinator.shell.turns.hurry(member.place)
    coordinator.shell.step()
    assert records._sent.keys() == {store_paths.ORDERS}
    world.orders(second, Orders(paused=True))
    coordinator.settle()
    assert world.directives(second, PauseOrder)


def test_a_case_that_another_one_has_written_is_read_in_place_of_one_that_was_sent_for() -> None:
    """One that has just begun to lead loses its session before it has looked at all."""
    world = World(applications=2)
    settled(world).resign()
    coordinator = world.coordinator()
    coordinator.shell.step()
    (place,) = coordinator.shell.turns.upcoming(1)
    second, path = coordinator.shell.desks[place], place.path(store_paths.COORDINATION)
    assert store_paths.COORDINATION in second.records._sent
    coordinator.connection.reachable = False
    world.fleet.connection.put(path, session.to_record(session.Case(sequence=40)))
    coordinator.connection.mend()
    coordinator.settle()
    assert second.version == world.shared.store.records[path][1]
    assert not coordinator.shell.metrics.registry.get_sample_value(
        "rekindle_coordinator_conflicts_total"
    )


def test_a_plan_that_is_due_later_is_made_at_its_moment() -> None:
    world = World(partition_percent=50.0, stabilisation_seconds=10.0)
    coordinator = settled(world)
    world.lose(world.member, 0, 1, 2)
    coordinator.settle()
    world.fleet.obey(world.member)
    world.fleet.report(world.member)
    coordinator.settle()
    before = len(world.directives(world.member, PlanOrder))
    world.member.nodes["a0-node-0"] = NodeSeen(incarnation="2.0", capacity_percent=400.0)
    world.fleet.report(world.member)
    coordinator.settle()
    assert len(world.directives(world.member, PlanOrder)) == before
    world.now += 10.1
    coordinator.settle()
    assert len(world.directives(world.member, PlanOrder)) == before + 1


def test_a_priority_ends_at_its_moment_without_any_news() -> None:
    world = World()
    coordinator = settled(world)
    override = PriorityOverride(priority=10, until=world.now + 30)
    world.orders(world.member, Orders(priorities={"query-00-out": override}))
    coordinator.settle()
    desk = coordinator.shell.desks[world.member.place]
    assert desk.case is not None
    assert desk.case.state is not None
    assert desk.case.state.priorities["query-00-out/0"] == 5
    world.now += 30.1
    coordinator.settle()
    assert desk.case.state.priorities["query-00-out/0"] == 0.5


def test_a_malformed_record_stops_only_its_application_until_it_is_replaced() -> None:
    world = World(applications=2)
    coordinator = settled(world)
    bad, good = world.fleet.members
    world.fleet.connection.put(bad.place.path(store_paths.PROGRESS), b'{"kind": "progress"}')
    coordinator.settle()
    world.now += 100
    coordinator.settle()
    (line,) = coordinator.lines("application-stopped")
    assert (line["application"], "progress" in line["text"]) == ("test/a0", True)
    world.lose(good, 0)
    coordinator.settle()
    assert world.directives(good, PlanOrder)
    world.lose(bad, 0)
    coordinator.settle()
    assert world.directives(bad, PlanOrder)
    assert coordinator.lines("application-goes-on")


def test_a_topology_that_means_nothing_stops_its_application() -> None:
    world = World()
    path = world.member.place.path(store_paths.TOPOLOGY)
    data = world.shared.store.records[path][0]
    world.fleet.connection.put(path, data.replace(b'"query-00-out"', b'"query-01-out"'))
    coordinator = settled(world)
    (line,) = coordinator.lines("application-stopped")
    assert "query-01-out" in line["text"]


def test_a_failing_decision_stops_its_application_and_is_told_with_its_trace() -> None:
    world = World(applications=2)
    coordinator = settled(world)
    bad, good = world.fleet.members
    desk = coordinator.shell.desks[bad.place]
    desk.version = object()  # as a bug of ours would
    desk.case = 7
    for member in (bad, good):
        world.lose(member, 0)
    coordinator.settle()
    (line,) = coordinator.lines("application-stopped")
    assert "Traceback" in line["trace"]
    assert world.directives(good, PlanOrder)
    world.now += 11
    coordinator.settle()
    assert world.directives(bad, PlanOrder)


def test_queries_that_have_stopped_and_slow_nodes_are_counted_by_who_leads() -> None:
    world = World(applications=2)
    leader, follower = settled(world), world.coordinator()
    member = world.member
    slow, *others = member.nodes
    progress = msgspec.structs.replace(
        member.progress(),
        stopped={"query-00/0": "bad", "query-00/1": "bad"},
        nodes={
            slow: msgspec.structs.replace(member.nodes[slow], slow=True),
            **{name: member.nodes[name] for name in others},
        },
    )
    world.fleet.connection.put(member.place.path(store_paths.PROGRESS), protocol.encode(progress))
    leader.settle()
    follower.settle()

    def counted(name: str) -> list[float | None]:
        registries = (leader.shell.metrics.registry, follower.shell.metrics.registry)
        return [item.get_sample_value(f"rekindle_coordinator_{name}") for item in registries]

    assert counted("queries_stopped") == [1, 0]
    assert counted("nodes_slow") == [1, 0]


def test_a_second_coordinator_only_follows_and_takes_over_with_the_same_plan() -> None:
    world = World()
    first, second = settled(world), settled(world)
    assert (first.shell.leading, second.shell.leading) == (True, False)
    world.lose(world.member, 0)
    first.settle()
    second.settle()
    (plan,) = world.directives(world.member, PlanOrder)
    first.resign()
    second.settle()
    assert second.shell.leading
    assert world.directives(world.member, PlanOrder) == [plan]
    world.fleet.obey(world.member)
    world.lose(world.member, 1)
    second.settle()
    _, more = world.directives(world.member, PlanOrder)
    assert (more.plan_epoch, more.order.builds_on) == (plan.plan_epoch + 1, plan.plan_epoch)


def test_at_a_takeover_a_loss_that_nobody_has_answered_comes_first() -> None:
    world = World(applications=5)
    first, second = settled(world), settled(world)
    in_incident, unanswered = world.fleet.members[1], world.fleet.members[3]
    world.lose(in_incident, 0)
    first.settle()
    world.lose(unanswered, 0)
    second.settle()
    first.resign()
    decided = []
    for _ in range(3):
        second.shell.step()
        decided.append({str(p) for p, desk in second.shell.desks.items() if desk.case is not None})
    assert decided[0] == {str(unanswered.place)}
    assert decided[1] == {str(unanswered.place), str(in_incident.place)}
    assert len(decided[2]) == 3


def test_one_that_still_believes_it_leads_cannot_plan_what_another_has_planned() -> None:
    world = World()
    first, second = settled(world), settled(world)
    world.shared.candidates.reverse()
    second.settle()
    world.lose(world.member, 0)
    stopped = first.shell.desks[world.member.place]
    second.settle()
    stopped.records.mark([store_paths.PROGRESS])
    first.shell.leading, first.shell._term = True, 1
    first.shell._candidacy = world.shared.candidates[0]
    first.settle()
    assert len(world.directives(world.member, PlanOrder)) == 1
    assert stopped.version == second.shell.desks[world.member.place].version


def test_a_write_of_unknown_outcome_is_looked_up_and_not_repeated() -> None:
    world = World()
    coordinator = settled(world)
    coordinator.connection.answer_lost = True
    world.lose(world.member, 0)
    coordinator.settle()
    assert len(world.directives(world.member, PlanOrder)) == 1
    assert coordinator.shell.desks[world.member.place].case is not None


def test_what_happened_while_the_store_was_away_is_planned_for_when_it_is_back() -> None:
    world = World()
    coordinator = settled(world)
    coordinator.connection.reachable = False
    world.lose(world.member, 0)
    coordinator.settle()
    assert not world.directives(world.member, PlanOrder)
    coordinator.connection.mend()
    coordinator.settle()
    assert len(world.directives(world.member, PlanOrder)) == 1
    kinds = ("store-reachable", "store-unreachable")
    assert [len(coordinator.lines(kind)) for kind in kinds] == [2, 1]
    first, again = (line["text"] for line in coordinator.lines("store-reachable"))
    assert first == "the coordination store answers."
    assert again == "the coordination store answers again."


def test_a_clock_that_was_set_back_delays_no_plan() -> None:
    world = World(partition_percent=50.0, stabilisation_seconds=10.0)
    coordinator = settled(world)
    world.lose(world.member, 0, 1, 2)
    coordinator.settle()
    world.fleet.obey(world.member)
    world.member.nodes["a0-node-0"] = NodeSeen(incarnation="2.0", capacity_percent=400.0)
    world.fleet.report(world.member)
    coordinator.settle()
    before = len(world.directives(world.member, PlanOrder))
    world.now -= 3_600
    coordinator.settle()
    world.now += 10.1
    coordinator.settle()
    assert len(world.directives(world.member, PlanOrder)) == before + 1


def test_the_providers_word_on_failure_domains_holds_whenever_it_comes() -> None:
    world, provider = World(), Provider(located={"a0-node-1": "rack-1"})
    coordinator = settled(world, provider)

    def known() -> dict[str, str | None]:
        case = coordinator.shell.desks[world.member.place].case
        assert case is not None
        assert case.state is not None
        return {node: view.domain for node, view in case.state.nodes.items()}

    assert known() == {**dict.fromkeys(world.member.nodes), "a0-node-1": "rack-1"}
    provider.located = {"a0-node-1": "rack-2", "a0-node-2": "rack-3"}
    world.fleet.report(world.member)
    coordinator.settle()
    assert known() == {**dict.fromkeys(world.member.nodes), **provider.located}


def test_a_notice_of_the_provider_is_recorded_and_a_node_requested_without_any_report() -> None:
    world, provider = World(), Provider()
    coordinator = settled(world, provider)

    def announced() -> dict[str, LossNotice]:
        case = coordinator.shell.desks[world.member.place].case
        assert case is not None
        assert case.state is not None
        return coordination_state.announced(case.state)

    provider.announced = {"a0-node-2": LossNotice("spot", world.now + 120.0)}
    coordinator.settle()
    assert announced()["a0-node-2"].source == "spot"
    assert set(provider.requests) == {"test/a0 1-nodes-1"}
    provider.looking = OSError("the API server is away")
    coordinator.settle()
    assert announced(), "what was said holds on"
    provider.looking, provider.announced = None, None
    coordinator.settle()
    assert announced(), "a provider that knows nothing yet withdraws nothing"
    assert set(provider.recorded) == {"a0-node-2"}
    coordinator.shell.desks[world.member.place].drop()
    provider.recorded = {}
    world.fleet.report(world.member)
    coordinator.settle()
    assert set(provider.recorded) == {"a0-node-2"}, "it is told what the store has"
    provider.announced = {}
    coordinator.settle()
    assert announced() == {}


def test_nodes_that_the_provider_misses_are_dropped_without_any_report() -> None:
    world, provider = World(), Provider()
    coordinator = settled(world, provider)
    provider.gone = frozenset({"a0-node-2"})
    coordinator.settle()
    (drop,) = world.directives(world.member, DropOrder)
    assert drop.order == DropOrder(nodes={"a0-node-2": "1.0"})
    (identity,) = provider.requests
    assert identity == "test/a0 1-nodes-1"


def test_a_driver_whose_process_is_gone_is_asked_for_again() -> None:
    world, provider = World(), Provider()
    coordinator = settled(world, provider)
    provider.driver = True
    coordinator.settle()
    assert not provider.requests
    world.fleet.connection.remove(world.member.place.path(store_paths.HEARTBEAT))
    coordinator.settle()
    assert {request.what for request in provider.requests.values()} == {"driver"}
    assert coordinator.lines("driver-requested")


def test_a_provider_in_trouble_is_said_once_and_asked_again() -> None:
    world, provider = World(), Provider(trouble="disk full")
    coordinator = settled(world, provider)
    world.lose(world.member, 0)
    coordinator.settle()
    world.now += 6
    coordinator.settle()
    assert [line["text"] for line in coordinator.lines("provider-failed")] == ["disk full"]
    provider.trouble = ""
    world.now += 6
    coordinator.settle()
    assert provider.requests


@pytest.mark.parametrize("trouble", [OSError("disk full"), ValueError("not a number")])
def test_from_a_provider_in_trouble_no_driver_is_gone(trouble: Exception) -> None:
    world, provider = World(), Provider()
    coordinator = settled(world, provider)
    provider.driver = True
    heartbeat = world.member.place.path(store_paths.HEARTBEAT)
    world.fleet.connection.remove(heartbeat)
    coordinator.settle()
    assert coordinator.shell.desks[world.member.place].gone == (frozenset(), True)
    provider.looking = trouble
    coordinator.settle()
    assert coordinator.shell.desks[world.member.place].gone == (frozenset(), False)
    (line,) = coordinator.lines("provider-failed")
    assert str(trouble) in line["text"]


def test_the_log_has_the_plan_with_its_problem_and_answer_once_it_is_in_the_store() -> None:
    world = World()
    coordinator = settled(world)
    world.lose(world.member, 0)
    coordinator.settle()
    (line,) = coordinator.lines("plan")
    (plan,) = world.directives(world.member, PlanOrder)
    assert (line["generation"], line["application"]) == (1, "test/a0")
    assert line["n"] == line["plan_epoch"] == plan.plan_epoch
    assert line["placement"] == plan.order.placement
    assert set(line["queries"]) == set(plan.order.query_partitions)
    assert line["text"] == plan.text
    assert set(line["problem"]["queries"]) >= set(line["answer"]["queries"])
    assert {"reason", "priorities", "priority_sum"} <= line.keys()
    assert [line["details"]["nodes"] for line in coordinator.lines("nodes-lost")] == [["a0-node-0"]]
    assert [line["count"] for line in coordinator.lines("nodes-requested")] == [1]
    assert {line["order"] for line in coordinator.lines("directive")} >= {"plan", "buffering"}


def test_a_provider_whose_news_fail_ends_nothing_and_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, provider = World(), Provider()
    coordinator = settled(world, provider)

    def news() -> None:
        raise KeyError("spec")

    monkeypatch.setattr(provider, "news", news)
    provider.gone = frozenset({"a0-node-0"})
    coordinator.settle()
    coordinator.settle()
    (line,) = coordinator.lines("provider-failed")
    assert "KeyError: 'spec'" in line["text"]
    assert world.directives(world.member, DropOrder)  # each application is asked about


def test_a_provider_that_takes_long_leaves_as_much_time_to_plans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, provider = World(applications=10), Provider()
    coordinator = settled(world, provider)
    moment, asked = time.monotonic() + 100.0, list[float]()

    def news() -> None:
        nonlocal moment
        asked.append(moment)
        moment += 0.4

    monkeypatch.setattr(provider, "news", news)
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    for member in world.fleet.members:
        world.lose(member, 0)
    for _ in range(40):
        coordinator.shell.step()
        moment += 0.05
    assert len(coordinator.lines("plan")) == 10
    assert len(asked) == 5, "asked for 0.4 s, it is left alone for as long"


def _sent(world: World) -> list[int]:
    folder = world.member.place.path(store_paths.DIRECTIVES)
    return [int(name) for name in world.names(folder)]


def test_a_record_that_was_deleted_gives_no_number_a_second_time() -> None:
    world = World()
    settled(world)
    world.lose(world.member, 0)
    world.coordinator().settle()
    before = _sent(world)
    assert before
    # nothing has been looked at: only the store knows these numbers
    world.shared.store.remove(world.member.place.path(store_paths.COORDINATION))
    world.shared.candidates.clear()
    coordinator = settled(world)
    world.lose(world.member, 1)
    coordinator.settle()
    assert world.directives(world.member, PlanOrder)[-1].sequence > max(before)
    assert len(set(_sent(world))) == len(_sent(world)) > len(before)


def test_a_directive_that_the_store_has_lost_is_missed_after_a_while() -> None:
    world = World()
    coordinator = settled(world)
    world.lose(world.member, 0)
    coordinator.settle()
    (plan,) = world.directives(world.member, PlanOrder)
    path = world.member.place.path(store_paths.DIRECTIVES, store_paths.numbered(plan.sequence))
    world.shared.store.remove(path)
    for _ in range(3):
        world.now += 6.0
        world.fleet.report(world.member)
        coordinator.settle()
    world.fleet.obey(world.member)
    world.fleet.report(world.member)
    coordinator.settle()
    (again,) = world.directives(world.member, PlanOrder)
    assert set(again.order.placement) == set(plan.order.placement)
    assert again.sequence > plan.sequence


def test_an_application_that_was_removed_is_forgotten() -> None:
    world = World(applications=2)
    coordinator = settled(world)
    place = world.member.place
    for path in [path for path in world.shared.store.records if path.startswith(place.path())]:
        world.fleet.connection.remove(path)
    coordinator.settle()
    assert set(coordinator.shell.desks) == {world.fleet.members[1].place}
    assert not [path for path in coordinator.connection.watches if place.path() in path]


def test_a_namespace_whose_folder_was_removed_is_watched_no_more() -> None:
    world = World(applications=2)
    coordinator = settled(world)
    folder = world.member.place.path().rpartition("/")[0]
    assert folder in coordinator.connection.watches
    for path in [path for path in world.shared.store.records if path.startswith(f"{folder}/")]:
        world.fleet.connection.remove(path)
    coordinator.settle()
    assert folder not in coordinator.connection.watches


class Observer:
    """An observer of decisions that keeps the applications that it has heard of."""

    def __init__(self) -> None:
        self.kept: set[Place] = set()

    def heard(self, place: Place, reading: ApplicationReading) -> None:
        del reading
        self.kept.add(place)

    def terms(self, place: Place, reading: ApplicationReading) -> DecisionTerms:
        del place
        return DecisionTerms(reading)

    def decided(self, place: Place, look: Look) -> None:
        del look
        self.kept.add(place)

    def forget(self, place: Place) -> None:
        self.kept.remove(place)

    def retire(self, days: int) -> None:
        del days


@pytest.mark.parametrize("leads", [True, False])
def test_an_observer_forgets_an_application_whose_records_are_gone_whoever_leads(
    leads: bool,
) -> None:
    world, observer = World(applications=2), Observer()
    gone, left = (member.place for member in world.fleet.members)
    first = settled(world)
    coordinator = world.coordinator()
    coordinator.shell.oversight = observer
    coordinator.settle()
    if leads:
        first.resign()
        coordinator.settle()
    assert (coordinator.shell.leading, observer.kept) == (leads, {gone, left})
    connection = world.fleet.connection
    connection.remove(gone.path(store_paths.HEARTBEAT))
    found = application_removal.look_at_application(connection, gone)
    application_removal.remove_application(connection, found)
    coordinator.settle()
    assert set(coordinator.shell.desks) == observer.kept == {left}
