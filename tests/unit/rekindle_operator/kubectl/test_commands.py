"""The plugin's own words: how applications stand, what waits, what an approval does."""

import json
import subprocess
import sys
from contextlib import nullcontext
from datetime import timedelta, timezone
from importlib import import_module
from typing import Any

import msgspec
import plugin_world as world
import preflight_world
import pytest
import yaml

from rekindle.model.errors import InputError
from rekindle_operator.api import recovery_policy, recovery_resource
from rekindle_operator.kubectl import plugin_main, recovery_text
from rekindle_operator.kubectl.api_connection import ApiRefusal
from rekindle_operator.kubectl.subcommands import kubectl_approve, kubectl_status
from rekindle_testing.operator_builders import make_class, make_policy

EAST = timezone(timedelta(hours=2))


def rows(*recoveries: Any, **changed: Any) -> dict[str, kubectl_status.Row]:
    found = kubectl_status.rows_of([world.policy(**changed)], recoveries)
    return {row.application: row for row in found}


def test_an_application_stands_as_its_policy_and_its_open_recovery_say() -> None:
    row = rows(world.recovery())["departures"]
    assert (row.protected, row.phase, row.back, row.lost_nodes) == (True, "Recovering", "1/4", 3)
    other = rows(world.recovery())["backfill"]
    assert (other.protected, other.reason, other.recovery) == (False, "SidecarMissing", "")


@pytest.mark.parametrize("phase", ["Recovered", "Abandoned"])
def test_a_recovery_that_is_over_is_not_shown_as_open(phase: str) -> None:
    assert rows(world.recovery(phase=phase))["departures"].recovery == ""


def test_a_recovery_shows_its_application_though_no_policy_names_it() -> None:
    row = rows(world.recovery(), applications=())["departures"]
    assert (row.protected, row.policy) == (None, "departures")


def test_the_dangers_of_an_incident_go_before_those_of_its_policy() -> None:
    danger = world.condition("CoordinationAtRisk", "True", "StoreUnreachable", "The store is gone.")
    other = world.condition("CoordinationAtRisk", "True", "NoStandby", "Nobody would take over.")
    found = rows(world.recovery(conditions=(danger,)), conditions=(other,))
    assert found["departures"].at_risk == "StoreUnreachable"
    assert found["backfill"].at_risk == "NoStandby"


@pytest.mark.parametrize(
    ("kind", "status", "reason", "told"),
    [
        ("Accepted", "True", "AsWritten", False),
        ("Accepted", "True", "Narrowed", True),
        ("Accepted", "False", "ClassMissing", True),
        ("Exclusive", "True", "NoOverlap", False),
        ("Exclusive", "False", "PoliciesOverlap", True),
        ("QueriesRunning", "True", "QueriesRun", False),
        ("QueriesRunning", "False", "QueryStopped", True),
        ("QueriesRunning", "Unknown", "NothingSelected", False),
        ("CoordinationAtRisk", "False", "CoordinationSound", False),
        ("CoordinationAtRisk", "True", "StoreSingle", True),
        ("Protected", "False", "SidecarMissing", False),
    ],
)
def test_conditions_that_a_person_should_know_are_told(
    kind: str, status: str, reason: str, told: bool
) -> None:
    policy = world.policy(conditions=(world.condition(kind, status, reason, "Why."),))
    assert [item.reason for item in kubectl_status.notices([policy])] == ([reason] if told else [])


def test_a_policy_that_nobody_has_looked_at_is_told() -> None:
    found = kubectl_status.notices([world.policy(observed_generation=0)])
    assert [item.reason for item in found] == ["NotObserved"]


def test_the_story_is_told_in_the_readers_own_time() -> None:
    text = "\n".join(recovery_text.story(world.recovery(), world.NOW.astimezone(EAST)))
    assert "It began at 19:14:29 as a correlated failure, 2 min 30 s ago." in text
    assert "worker-3 in zone-a, suspected at 19:14:29, confirmed 5.4 s later, back at 19:16:49" in (
        text
    )
    assert "The driver was lost at 19:14:36, its node fenced at 19:14:52 (ShutdownTaint)" in text


def test_an_older_story_names_the_day() -> None:
    text = "\n".join(recovery_text.story(world.recovery(), world.NOW + timedelta(days=3)))
    assert "It began at 2026-11-21 17:14:29" in text


def announced_and_lost(*, withdrawn: bool = False, ended_after: int | None = 60) -> str:
    """The story of a node that was announced two minutes before it was lost, for which a node was
    requested at once."""
    lost_at = world.NOW
    asked_at = lost_at - timedelta(seconds=120)
    request = recovery_resource.NodeRequest(
        "r",
        "karpenter",
        2,
        "Pending" if ended_after is None else "Arrived",
        asked_at,
        ended_at=None if ended_after is None else asked_at + timedelta(seconds=ended_after),
    )
    later = msgspec.structs.replace(request, name="s", requested_at=lost_at, ended_at=None)
    row = recovery_resource.AnnouncedNode("n1", "taint spot", lost_at, withdrawn)
    found = world.recovery(
        announced_nodes=(row,),
        lost_nodes=(recovery_resource.LostNode("n1", confirmed_at=lost_at),),
        requests=(request, later),
    )
    return "\n".join(recovery_text.story(found, world.NOW))


def test_what_was_requested_at_a_notice_is_told_as_saved_once_the_node_is_lost() -> None:
    said = "2 nodes were requested up to 2 min before the first announced node was lost; {}"
    assert said.format("2 had come by then.") in announced_and_lost()
    assert said.format("0 had come by then.") in announced_and_lost(ended_after=130)
    assert said.format("0 had come by then.") in announced_and_lost(ended_after=None)
    assert "Saved by notice" not in announced_and_lost(withdrawn=True)


def test_a_recovery_of_which_nothing_is_told_yet_is_explained_all_the_same() -> None:
    record = recovery_resource.to_object("flights", world.recovery_spec())
    found = recovery_resource.from_object(record)
    *_, last = recovery_text.story(found, world.NOW)
    assert last == "The operator has not told anything of it yet."
    assert recovery_text.outlook(found).waiting == ()


@pytest.mark.parametrize(
    ("name", "out"),
    [("worst-delays", 14.6), ("busiest-airports", 144.6), ("rare", 144.6)],
)
def test_a_query_is_out_until_it_is_back_or_until_now(name: str, out: float) -> None:
    recovery = world.recovery()
    query = recovery_text.query_named(recovery, name)
    assert recovery_text.out_seconds(query, recovery, world.NOW) == pytest.approx(out)


def test_a_query_that_was_not_lost_has_run_all_the_time() -> None:
    recovery = world.recovery(queries=(recovery_resource.QueryRecovery("calm", 1.0),))
    query = recovery_text.query_named(recovery, "calm")
    assert recovery_text.out_seconds(query, recovery, world.NOW) is None
    assert "It was not lost" in "".join(recovery_text.of_query(query, recovery, world.NOW))


def test_a_query_that_never_came_back_was_out_until_the_end() -> None:
    recovery = world.recovery(phase="Abandoned", ended_at=world.at(105.4))
    query = recovery_text.query_named(recovery, "rare")
    *_, last = recovery_text.of_query(query, recovery, world.NOW)
    assert last == "It was not back when the recovery ended, after 1 min 40 s."


def test_a_query_that_is_none_is_answered_with_those_near_it() -> None:
    with pytest.raises(InputError, match="did you mean worst-delays"):
        recovery_text.query_named(world.recovery(), "worst-delay")


def test_what_waits_is_in_the_order_in_which_the_planner_looks() -> None:
    found = recovery_text.outlook(world.recovery())
    assert [query.name for query in found.waiting] == ["rare", "rarest"]
    assert [query.name for query in found.catching_up] == ["busiest-airports"]
    assert found.reasons == {"NoCapacity": "No room: 2 of 4 nodes are up."}
    assert found.unanswered is not None
    assert found.unanswered.number == 9
    assert found.hindrance is None


@pytest.mark.parametrize("phase", ["Suspected", "Held", "AwaitingApproval", "AwaitingDriver"])
def test_a_phase_in_which_nobody_plans_is_a_hindrance(phase: str) -> None:
    found = recovery_text.outlook(world.recovery(phase=phase))
    assert found.hindrance is not None
    assert found.hindrance[0] == "CorrelatedFailure"


FENCED_BY_APPROVAL = {"mode": "OutOfServiceTaint", "certainty": ["Approval"]}
GONE = recovery_resource.DriverRecovery(world.at(7))


@pytest.mark.parametrize(
    ("policy", "fencing", "driver", "words"),
    [
        ({}, FENCED_BY_APPROVAL, GONE, "worker-1. You say by this that the node is off"),
        ({"guards": {"fencing": "Never"}}, FENCED_BY_APPROVAL, GONE, "the policy never fences"),
        ({}, {}, GONE, "The class fences nothing by an approval"),
        ({}, None, GONE, "The class cannot be read"),
        ({}, FENCED_BY_APPROVAL, world.story().driver, "nothing is fenced"),
    ],
)
def test_an_approval_of_fencing_says_what_it_does_and_no_other_one_fences(
    policy: Any, fencing: Any, driver: Any, words: str
) -> None:
    recovery = world.recovery(phase="AwaitingApproval", driver=driver)
    class_ = None if fencing is None else make_class(fencing=fencing)
    held = (make_policy(**policy), class_)
    text = " ".join(kubectl_approve.of_approval(recovery, *held, fencing=True))
    assert words in text
    assert "plans are made" not in text
    other = " ".join(kubectl_approve.of_approval(recovery, *held))
    assert "plans are made and carried out" in other
    assert "The driver was on" not in other


def test_an_approval_that_nobody_waits_for_says_so() -> None:
    text = " ".join(kubectl_approve.of_approval(world.recovery(), None, None))
    assert "Nothing waits for the approval" in text


def test_an_approval_under_a_pause_or_a_dry_run_says_that_nothing_happens() -> None:
    text = " ".join(
        kubectl_approve.of_approval(
            world.recovery(), make_policy(paused=True), make_class(dryRun=True)
        )
    )
    assert "is paused" in text
    assert "dry run" in text


def test_help_needs_no_client_and_no_terminal_library() -> None:
    """Start-up counts: kubectl starts the plugin anew each time."""
    code = (
        "import sys\n"
        "from rekindle_operator.kubectl import plugin_main as main\n"
        "assert main.run(['--help']) == 0\n"
        "loaded = {'kubernetes', 'rich', 'numpy', 'networkx',"
        " 'rekindle_operator.cluster.cluster_cache'}\n"
        "print(sorted(loaded & set(sys.modules)))\n"
    )
    paths = [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_command_has_the_summary_and_an_example_in_its_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in plugin_main.COMMANDS:
        assert plugin_main.run([command.name, "--help"]) == 0
        words = " ".join(capsys.readouterr().out.split())
        assert command.summary in words
        assert f"Example: kubectl rekindle {command.name}" in words
        assert command.summary == (command.load().__doc__ or "").splitlines()[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stat"], "no such command"),
        (["explain"], "is missing"),
        (["status", "--outpt", "json"], "no such option"),
        (["preflight", "--offline"], "nothing to look at"),
        (["preflight", "-f", "x", "-A"], "--all-namespaces"),
        (["preflight", "-f", "absent.yaml", "--offline"], "absent.yaml"),
    ],
)
def test_wrong_usage_is_one_line_with_a_remedy(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin_main.run(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert "; " in error


def test_a_file_is_looked_at_without_any_cluster(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "departures.yaml"
    file.write_text(yaml.safe_dump(preflight_world.kubeflow_body()))
    assert plugin_main.run(["preflight", "-f", str(file), "--offline", "-o", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {item["severity"] for item in record["findings"]} == {"note"}
    assert plugin_main.run(["preflight", "-f", str(file), "--offline", "--fail-on", "note"]) == 1
    assert "0 errors, 0 warnings" in capsys.readouterr().out


def test_where_nobody_has_looked_nothing_is_said_to_be_well() -> None:
    unseen = world.recovery(phase=None, conditions=())
    row = rows(unseen, applications=())["departures"]
    assert (row.protected, row.phase, row.at_risk) == (None, "", None)
    sound = world.condition("CoordinationAtRisk", "False", "CoordinationSound", "All answer.")
    assert rows(unseen, applications=())["departures"].at_risk is None
    assert rows(world.recovery(conditions=(sound,)), applications=())["departures"].at_risk == ""
    assert rows(unseen, conditions=(sound,))["departures"].at_risk == ""


def test_the_same_of_many_policies_is_said_once() -> None:
    text = "The store has one server."
    said = [
        kubectl_status.StatusNotice(f"policy flights/{name}", "StoreSingle", text)
        for name in "abcde"
    ]
    other = kubectl_status.StatusNotice(
        "policy flights/a", "Paused", "Nothing is planned or requested."
    )
    assert kubectl_status.merged([*said[:2], other, *said[2:]]) == (
        kubectl_status.StatusNotice(
            "policy flights/a, policy flights/b, policy flights/c and 2 more", "StoreSingle", text
        ),
        other,
    )


def test_a_notice_does_not_repeat_its_reason() -> None:
    record = world.policy()
    spec = msgspec.structs.replace(record.spec, paused=True, dry_run=True)
    for notice in kubectl_status.notices([msgspec.structs.replace(record, spec=spec)]):
        first = notice.text.split()[0].strip(":,")
        assert not notice.reason.startswith(first)


class Answering:
    """A cluster with these objects."""

    default_namespace = "flights"
    namespace = "flights"

    def __init__(self, policies: Any = (), recoveries: Any = ()) -> None:
        self.lists = {"RecoveryPolicy": list(policies), "Recovery": list(recoveries)}

    def get(self, kind: Any, name: str) -> Any:
        for item in self.lists[kind.name]:
            if item["metadata"]["name"] == name:
                return item
        raise ApiRefusal(where=name, what="is not there", remedy="see", status=404)

    def list(self, kind: Any, namespace: str | None = None) -> Any:
        del namespace
        return self.lists[kind.name]


def running(monkeypatch: pytest.MonkeyPatch, cluster: Answering, *words: str) -> int:
    for name in ("status", "explain", "plan", "approve", "priority"):
        module = import_module(f"rekindle_operator.kubectl.subcommands.kubectl_{name}")
        monkeypatch.setattr(module, "connected", lambda _: nullcontext(cluster))
    return plugin_main.run(words)


@pytest.mark.parametrize("command", ["explain", "plan"])
def test_of_an_application_that_is_well_it_is_said_that_nothing_was_lost(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = world.policy_record()
    cluster = Answering(policies=[record])
    assert running(monkeypatch, cluster, command, "departures") == 0
    assert "flights/departures: nothing of it has been lost" in capsys.readouterr().out
    assert running(monkeypatch, cluster, command, "departures", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["recovery"] is None
    assert running(monkeypatch, cluster, command, "nope") == 2
    told = capsys.readouterr().err
    assert "there is no Recovery and no selected application of this name" in told
    assert "nothing" not in told


@pytest.mark.parametrize(
    ("phase", "reason", "is_said"),
    [
        ("CatchingUp", "UnknownApplications", True),
        ("CatchingUp", "DependencyCycle", True),
        ("CatchingUp", "Narrowed", False),
        ("Recovered", "UnknownApplications", False),
    ],
)
def test_why_applications_come_in_another_order_than_was_meant_is_explained_while_it_matters(
    phase: str,
    reason: str,
    is_said: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    remark = world.condition("Accepted", "True", reason, "applications names ingst.")
    record = world.policy_record(status=world.policy_status(conditions=(remark,)))
    ended = {"ended_at": world.NOW} if phase == "Recovered" else {}
    status = msgspec.structs.replace(world.story(), phase=phase, **ended)
    cluster = Answering([record], [world.recovery_object(status=status)])
    assert running(monkeypatch, cluster, "explain", "departures") == 0
    said = f"RecoveryPolicy flights/departures ({reason}): applications names ingst."
    assert (said in capsys.readouterr().out) is is_said
    cluster.lists["RecoveryPolicy"] = []
    assert running(monkeypatch, cluster, "explain", "departures") == 0


def test_a_recovery_that_is_not_there_is_not_said_to_have_lost_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert running(monkeypatch, Answering(), "approve", "nope") == 2
    told = capsys.readouterr().err
    assert told == (
        "flights/nope: there is no Recovery of this name; see `kubectl rekindle status` for what "
        "is there, and the namespace (-n)\n"
    )


def test_where_there_is_no_policy_status_says_so_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert running(monkeypatch, Answering(), "status") == 0
    told = capsys.readouterr().out
    assert "There is no RecoveryPolicy in namespace flights" in told
    assert "Make one, see docs/resources.md" in told
    record = world.policy_record(status=recovery_policy.PolicyStatus())
    assert running(monkeypatch, Answering(policies=[record]), "status") == 0
    assert "No application is selected in namespace flights." in capsys.readouterr().out


def test_a_query_is_cleared_by_its_name_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert running(monkeypatch, Answering(), "priority", "--clear", "a=5") == 2
    told = capsys.readouterr().err
    assert told == "argument 'a=5': is no query; give the query alone: --clear a\n"


def test_arguments_are_named_once_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in plugin_main.COMMANDS:
        plugin_main.run([command.name, "--help"])
        assert "[[" not in capsys.readouterr().out
