"""Changes of objects and definitions: what may change, who owns what, and upgrades."""

import copy

from resource_requests import DEFINITIONS, Api, Object, assert_refused, policy, recovery

from rekindle_local import process_sets

WAIT_SECONDS_MAX = 180.0


CHANGES: list[tuple[Object, str]] = [
    ({"incident": 8}, "incident never changes"),
    ({"policyName": "other"}, "policyName never changes"),
    ({"className": "other"}, "className never changes"),
    ({"application": {"name": "other"}}, "application never changes"),
    ({"application": {"uid": None}}, "application never changes"),
    ({"application": {"kind": "Driver", "group": None}}, "application never changes"),
]


def test_what_a_recovery_is_about_never_changes(api: Api, namespace: str) -> None:
    record = recovery(namespace)
    assert api.create(record)[0] == 201
    for change, message in CHANGES:
        assert_refused(*api.patch(record, {"spec": change}), message)


def test_an_approval_is_given_once_and_not_taken_back(api: Api, namespace: str) -> None:
    record = recovery(namespace)
    _, answer = api.create(record)
    assert answer["spec"]["approved"] is False
    status, answer = api.patch(record, {"spec": {"approved": True}})
    assert (status, answer["spec"]["approved"]) == (200, True)
    for withdrawn in (False, None):
        refusal = api.patch(record, {"spec": {"approved": withdrawn}})
        assert_refused(*refusal, "an approval cannot be taken back; set paused in the policy")


def test_two_people_apply_priorities_of_their_own_and_neither_overwrites_the_other(
    api: Api, namespace: str
) -> None:
    gitops = policy(namespace, priorities=[{"query": "worst-delays", "priority": 10}])
    person = {**policy(namespace), "spec": {"priorities": [{"query": "rare", "priority": 2}]}}
    assert api.apply(gitops, "gitops")[0] == 201
    assert api.apply(person, "person")[0] == 200
    gitops["spec"]["priorities"].append({"query": "busiest-airports", "priority": 8})
    status, answer = api.apply(gitops, "gitops")
    assert status == 200, answer
    assert priorities(answer) == {"worst-delays": 10, "busiest-airports": 8, "rare": 2}
    person["spec"]["priorities"] = [{"query": "worst-delays", "priority": 1}]
    status, answer = api.apply(person, "person")
    assert status == 409
    assert 'conflict with "gitops"' in answer["message"]
    person["spec"]["priorities"] = []
    assert priorities(api.apply(person, "person")[1]) == {"worst-delays": 10, "busiest-airports": 8}


def priorities(record: Object) -> dict[str, int]:
    return {item["query"]: item["priority"] for item in record["spec"]["priorities"]}


def test_a_definition_is_upgraded_with_an_added_field_and_keeps_its_objects(
    api: Api, namespace: str
) -> None:
    (definition,) = [
        item for item in DEFINITIONS if item["spec"]["names"]["kind"] == "RecoveryPolicy"
    ]
    before = api.create(policy(namespace, priorities=[{"query": "q", "priority": 3}]))[1]
    newer = copy.deepcopy(definition)
    (version,) = newer["spec"]["versions"]
    added = {"description": "New.", "type": "string", "maxLength": 9, "default": "blue"}
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["colour"] = added
    try:
        status, answer = api.apply(newer, "rekindle-tests", force=True)
        assert status == 200, answer
        assert process_sets.await_condition(
            lambda: api.get(before)["spec"].get("colour") == "blue", limit_seconds=WAIT_SECONDS_MAX
        )
        after = api.get(before)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert {**after["spec"], "colour": "blue"} == {**before["spec"], "colour": "blue"}
        status, answer = api.patch(after, {"spec": {"colour": "red"}})
        assert (status, answer["spec"]["colour"]) == (200, "red")
    finally:
        api.apply(definition, "rekindle-tests", force=True)
    # An older operator's definition goes back over it: the object stays, the field is not shown.
    assert process_sets.await_condition(
        lambda: "colour" not in api.get(before)["spec"], limit_seconds=WAIT_SECONDS_MAX
    )
    assert priorities(api.get(before)) == {"q": 3}
