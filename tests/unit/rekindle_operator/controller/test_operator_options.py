"""What the operator is started with: what cannot be right is refused before anything starts."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rekindle.model.errors import InputError
from rekindle_operator.cluster import api_client
from rekindle_operator.controller.operator_options import OperatorOptions, check
from rekindle_operator.controller.wiring import running

OPTIONS = OperatorOptions("zk-0.zk:2181,[::1]:2181", "rekindle", identity="one")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"store": "zk:99999"}, "'zk:99999' is no server"),
        ({"store": ""}, "is no server"),
        ({"namespace": "Bad Ns"}, "--namespace 'Bad Ns': is no name of Kubernetes"),
        ({"namespace": "a.b"}, "--namespace 'a.b': is no name"),
        ({"lease_name": "Bad Ns"}, "--lease-name 'Bad Ns': is no name of Kubernetes"),
        ({"identity": ""}, "--identity: is empty; give each operator a name of its own"),
        ({"webhook_service": "x y"}, "--webhook-service 'x y': is no name"),
        ({"webhook_configuration": "x y"}, "--webhook-configuration 'x y': is no name"),
        (
            {"store_ca_file": Path("/ca"), "issue_store_certificate": True},
            "--store-ca-file: is of somebody else's",
        ),
        ({"console_port": 8080}, "--console-port 8080: is that of --port too"),
    ],
)
def test_an_option_that_cannot_be_right_is_refused_by_its_name(
    changes: dict[str, Any], message: str
) -> None:
    options = replace(OPTIONS, **changes)
    with pytest.raises(InputError) as caught:
        check(options)
    assert message in str(caught.value)
    with pytest.raises(InputError), running(options, io.StringIO()):
        pytest.fail("it started")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"webhook_service": "rekindle-webhook", "lease_name": "a.b"},
        {"port": 9443, "webhook": False},
        {"port": 0, "console_port": 0},
    ],
)
def test_options_that_may_be_right_are_not_refused(changes: dict[str, Any]) -> None:
    check(replace(OPTIONS, **changes))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"hello", "is no kubeconfig"),
        (b"\xff\xfe\x00\x01", "is no kubeconfig"),
        (b"- a", "is no kubeconfig"),
        (b"a: [", "is no kubeconfig"),
        (b"clusters: 3\n", "kubeconfig"),
        (b"", "kubeconfig"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused_in_one_line(
    tmp_path: Path, content: bytes, what: str
) -> None:
    file = tmp_path / "config"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        api_client.connect(str(file), connections=1)
    text = str(caught.value)
    assert text.startswith(f"--kubeconfig {file}: ")
    assert what in text
    assert "\n" not in text


def test_outside_of_a_cluster_a_kubeconfig_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InputError) as caught:
        api_client.connect(None, connections=1)
    assert ".;" not in str(caught.value)
