"""Runs of the plugin in this process, and objects for it to look at.

Tests of this folder call it; what they expect is theirs.
"""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plugin_world as world
import pytest
from resource_requests import DEFINITIONS, Api, Object

from rekindle_local import process_sets
from rekindle_operator.kubectl import plugin_main

__all__ = ["Plugin", "Run", "define", "make", "make_policy", "make_recovery"]


WAIT_SECONDS_MAX = 180.0


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of the plugin gave."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> Any:
        """Its JSON."""
        return json.loads(self.out)

    def done(self) -> "Run":
        """Itself, after a run that went well."""
        assert self.code == 0, self.err
        assert self.err == ""
        return self

    def refused(self, *words: str, code: int = 2) -> "Run":
        """Itself, after a run that ended with one line that has these words in it."""
        assert self.code == code, (self.out, self.err)
        assert "Traceback" not in self.err
        assert len(self.err.splitlines()) == 1, self.err
        assert self.err.count("; ") >= 1, self.err
        for word in words:
            assert word in self.err, self.err
        return self


@dataclass(frozen=True, slots=True)
class Plugin:
    """Calls the plugin as one user, in one namespace."""

    kubeconfig: Path
    namespace: str
    capsys: pytest.CaptureFixture[str]

    def __call__(self, command: str, *arguments: str) -> Run:
        inside = () if {"-A", "-n"} & {*arguments} else ("-n", self.namespace)
        words = [command, *arguments, *inside, "--kubeconfig", str(self.kubeconfig)]
        self.capsys.readouterr()
        code = plugin_main.run(words)
        captured = self.capsys.readouterr()
        return Run(code, captured.out, captured.err)


def define(api: Api) -> None:
    """Have our definitions served."""
    for record in DEFINITIONS:
        status, answer = api.apply(record, "rekindle-tests", force=True)
        assert status in (200, 201), answer["message"]
    assert process_sets.await_condition(
        lambda: all(_is_served(api.get(record)) for record in DEFINITIONS),
        limit_seconds=WAIT_SECONDS_MAX,
    )


def _is_served(record: Object) -> bool:
    """A definition that was just made has conditions that are null."""
    conditions = record.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def make(api: Api, record: Object, *, status: bool = True) -> Object:
    """Create an object, and write its status."""
    wanted = copy.deepcopy(record)
    wanted["metadata"] = {
        name: value for name, value in wanted["metadata"].items() if name in ("name", "namespace")
    }
    said = wanted.pop("status", None)
    code, made = api.create(wanted)
    assert code == 201, made
    if said is None or not status:
        return made
    code, made = api.put({**made, "status": said}, "/status")
    assert code == 200, made
    return made


def make_policy(api: Api, namespace: str, **spec: Any) -> Object:
    """The policy, applied by GitOps, with the status of an operator."""
    record = world.policy_record(namespace, **spec)
    said = record.pop("status")
    record["metadata"] = {"name": "departures", "namespace": namespace}
    code, made = api.apply(record, "gitops")
    assert code in (200, 201), made
    code, made = api.put({**made, "status": said}, "/status")
    assert code == 200, made
    return made


def make_recovery(api: Api, namespace: str, incident: int = 7, **known: Any) -> Object:
    """A recovery in the middle of it."""
    record = world.recovery_object(namespace, incident, **known)
    return make(api, record)
