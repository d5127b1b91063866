"""Credentials of namespaces as values: how they are made and written, and what they open."""

from pathlib import Path

import pytest
from kazoo.security import Permissions

from rekindle.model.errors import InputError
from rekindle.protocol import store_paths
from rekindle_zookeeper import acl

SECRET = "0123456789abcdefghij"
READ, WRITE, CREATE, DELETE = (
    Permissions.READ,
    Permissions.WRITE,
    Permissions.CREATE,
    Permissions.DELETE,
)
PLACE = store_paths.Place("flights", "tracker")


def test_a_credential_is_the_same_each_time_and_another_for_all_that_it_is_made_from() -> None:
    made = acl.derive(SECRET, "flights", "uid-1", 1)
    assert made == acl.derive(SECRET, "flights", "uid-1", 1)
    others = {
        acl.derive("x" + SECRET, "flights", "uid-1", 1).password,
        acl.derive(SECRET, "weather", "uid-1", 1).password,
        acl.derive(SECRET, "flights", "uid-2", 1).password,
        acl.derive(SECRET, "flights", "uid-1", 2).password,
    }
    assert len(others | {made.password}) == 5
    assert made.user == "namespace/flights"
    assert SECRET not in acl.to_text(made)
    assert made.operator == acl.from_text(SECRET).digest


def test_a_credential_is_read_as_it_was_written_and_shows_no_password_in_logs() -> None:
    made = acl.derive(SECRET, "flights", "uid-1", 1)
    assert acl.from_text(acl.to_text(made)) == made
    assert made.password not in repr(made)


@pytest.mark.parametrize(
    "text", ["open", "rekindle-credential-1 a b", "rekindle-credential-2 a b c"]
)
def test_what_is_no_credential_of_a_namespace_is_a_shared_secret(text: str) -> None:
    assert acl.from_text(text).shown == ("digest", f"rekindle:{text}")


def test_no_credentials_are_made_from_a_secret_that_could_be_guessed() -> None:
    with pytest.raises(InputError, match=r"has 19 characters.*at least 20 random"):
        acl.derive(SECRET[:-1], "flights", "uid-1", 1)


def test_what_a_namespace_makes_is_its_own_and_the_operators() -> None:
    made = acl.derive(SECRET, "flights", "uid-1", 1)
    operator, own = made.acl
    assert (operator.id.id, operator.acl_list) == (acl.from_text(SECRET).digest, ["ALL"])
    assert own.id.id == made.digest
    assert own.perms == READ | WRITE | CREATE | DELETE


def test_a_file_with_another_credential_is_taken_up_and_one_that_is_broken_is_not(
    tmp_path: Path,
) -> None:
    file = tmp_path / "secret"
    file.write_text("first")
    held = acl.Access.of(None, file)
    assert held.renew() is None
    file.write_text("second")
    renewed = held.renew()
    assert renewed is not None
    assert renewed.password == "second"
    assert held.credential == renewed
    file.write_text("")
    assert held.renew() is None
    file.unlink()
    assert held.renew() is None
    assert held.credential == renewed


@pytest.mark.parametrize(
    ("names", "rights"),
    [
        ((), READ),
        (("tracker",), READ | CREATE | DELETE),
        (("tracker", store_paths.COORDINATION), READ),
        (("tracker", store_paths.COORDINATION, store_paths.GUARD), READ),
        (("tracker", store_paths.ORDERS), READ),
        (("tracker", store_paths.DIRECTIVES), READ | DELETE),
        (("tracker", store_paths.DIRECTIVES, "0000000001"), READ),
        (("tracker", store_paths.DIRECTIVES, store_paths.GUARD), READ),
        (("tracker", store_paths.DIRECTIVES, store_paths.GUARD, store_paths.GUARD), READ),
        (("tracker", store_paths.ACKS), READ | CREATE | DELETE),
        (("tracker", store_paths.PIECES), READ | CREATE | DELETE),
        (("tracker", store_paths.HEARTBEAT), READ | WRITE),
        (("tracker", store_paths.ACKS, "0000000001"), READ | WRITE),
    ],
)
def test_a_namespace_may_do_with_each_record_what_its_driver_does(
    names: tuple[str, ...], rights: int
) -> None:
    assert acl.granted("flights", *names) == rights
    path = "/".join((store_paths.APPLICATIONS, "flights", *names))
    entries = acl.acl(path, "rekindle:o", "namespace/flights:f")
    assert {(entry.id.id, entry.perms) for entry in entries} == {
        ("rekindle:o", Permissions.ALL),
        ("namespace/flights:f", rights),
    }


@pytest.mark.parametrize(
    ("path", "others"),
    [
        ("/rekindle", []),
        (store_paths.APPLICATIONS, []),
        (store_paths.OPERATORS, []),
        ("/rekindle/v1x/flights", []),
        (f"{store_paths.ELECTION}/a", []),
        (store_paths.ELECTION, [("world", "anyone", READ)]),
    ],
)
def test_what_is_no_namespaces_is_the_operators_alone(
    path: str, others: list[tuple[str, str, int]]
) -> None:
    operator, *rest = acl.acl(path, "rekindle:o", "namespace/flights:f")
    assert (operator.id.id, operator.perms) == ("rekindle:o", Permissions.ALL)
    assert [(*entry.id, entry.perms) for entry in rest] == others


def test_a_record_of_a_namespace_without_a_credential_is_the_operators_alone() -> None:
    (entry,) = acl.acl(PLACE.path(store_paths.PROGRESS), "rekindle:o", "")
    assert (entry.id.id, entry.perms) == ("rekindle:o", Permissions.ALL)
