"""What a Recovery tells of nodes that are announced to go, and of what a notice has saved."""

from datetime import UTC, datetime

from story_world import COSTS, World, running

from rekindle.coordination.announced_losses import SCALE_DOWN
from rekindle.coordination.coordination_events import LossNotice
from rekindle_operator.api.recovery_resource import RecoveryStatus
from rekindle_operator.detection import loss_notices
from rekindle_operator.policies.effective_policy import ReachedLimit
from rekindle_operator.recovery import lost_nodes
from rekindle_operator.recovery.recovery_inputs import RecoveryTerms


def with_notice(*nodes: str) -> World:
    """Everything runs, the driver can move, and nodes are announced to go."""
    world = running()
    world.moves = True
    world.step()
    world.announce(*nodes)
    world.step()
    return world


def told(world: World) -> RecoveryStatus:
    (number,) = world.objects
    return world.status(number)


def busiest(world: World) -> str:
    held = list(world.placement.values())
    return max(sorted(set(held)), key=held.count)


def sentences(world: World) -> str:
    return " ".join(item.message for item in world.announced.values())


def test_a_notice_is_told_with_its_node_its_deadline_and_what_says_so() -> None:
    world = with_notice("n1")
    status = told(world)
    assert (status.phase, status.reason, status.kind) == ("Recovering", "LossAnnounced", None)
    ((row),) = status.announced_nodes
    assert (row.name, row.by, row.withdrawn) == ("n1", "spot", False)
    assert row.until == datetime.fromtimestamp(world.leaving["n1"].until, UTC)
    assert status.lost_nodes == ()
    assert status.message is not None
    assert status.message.startswith("Announced to go: n1, the first at ")
    assert "Announced to go: n1 (spot)." in sentences(world)
    (request,) = status.requests
    assert (request.count, request.reason) == (1, "LossAnnounced")
    confirmed = {item.type: item.status for item in status.conditions}
    assert confirmed["Confirmed"] == "False"


def test_a_withdrawn_notice_ends_the_story_with_nothing_lost() -> None:
    world = with_notice("n1")
    world.announce()
    world.step()
    status = told(world)
    assert (status.phase, status.reason) == ("Abandoned", "NoticeWithdrawn")
    assert [row.withdrawn for row in status.announced_nodes] == [True]


def test_an_approval_and_a_turn_that_are_awaited_show_although_nothing_is_lost() -> None:
    world = running()
    world.announce("n1")
    world.step()
    world.terms = RecoveryTerms(approval_needed=True)
    world.step()
    assert (told(world).phase, told(world).reason) == ("AwaitingApproval", "ApprovalAwaited")
    world.terms = RecoveryTerms(limit=ReachedLimit("class shared", 2, ("flights/a", "trains/b")))
    world.step()
    assert told(world).reason == "LossAnnounced"
    said = "Waits for flights/a, trains/b: class shared lets 2 recoveries go on at once"
    assert said in str(told(world).message)


def test_what_has_moved_before_the_loss_is_told_as_saved() -> None:
    world = running()
    node = busiest(world)
    held = {name for name, where in world.placement.items() if where == node}
    world.moves = True
    world.step()
    world.announce(node)
    for _ in range(3):
        world.step()
    moved = {name for name in held if world.placement[name] != node}
    assert moved
    world.lose(node)
    world.step()
    status = told(world)
    assert status.kind == "Independent"
    assert status.moved_partitions == len(moved)
    assert status.saved_query_partitions > 0
    assert status.saved_priority > 0
    assert [row.withdrawn for row in status.announced_nodes] == [False]
    assert "had moved off announced nodes before." in sentences(world)


def test_a_drain_with_a_notice_has_a_recovery_to_its_end() -> None:
    world = running()
    node = busiest(world)
    world.announce(node)
    world.step()
    world.lose(node)
    for _ in range(4):
        world.step()
        world.catch_up()
    world.step()
    world.complete_checkpoint()
    world.step()
    assert told(world).phase == "Recovered"
    assert len(world.live) == len(COSTS)


def test_work_that_a_new_driver_brings_back_ends_as_recovered_whatever_was_announced() -> None:
    world = running()
    world.announce("n1")
    world.step()
    world.kill_driver()
    world.announce()
    world.start_driver()
    for _ in range(4):
        world.step()
        world.catch_up()
    world.complete_checkpoint()
    world.step()
    assert (told(world).phase, told(world).kind) == ("Recovered", "Complete")


def test_the_core_knows_a_scale_down_by_what_detection_calls_it() -> None:
    notice = loss_notices.of_node([{"key": loss_notices.AUTOSCALER_TAINT, "value": "1"}], ())
    assert notice is not None
    assert {notice.by} == SCALE_DOWN


def test_a_node_of_two_executors_of_which_one_has_a_notice_stays_announced() -> None:
    """Each look gave another answer: announced, then withdrawn."""
    notices = {"m1": LossNotice("spot", 1_700_000_000.0)}
    first = lost_nodes.announced_rows((), notices, {"m1"})
    second = lost_nodes.announced_rows(first, notices, {"m1"})
    assert [row.withdrawn for row in (*first, *second)] == [False, False]
    assert [row.withdrawn for row in lost_nodes.announced_rows(second, {}, {"m1"})] == [True]
