"""What is said of a kubeconfig and of an API server that scenarios cannot use."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from rekindle.model.errors import InputError
from scenarios import kube_contexts
from scenarios.kube_contexts import KUBECONFIG, Context
from testbed import kubeconfigs

TEXT = """
clusters: [{{name: kind, cluster: {{server: "{server}"}}}}]
users: [{{name: me, user: {{token: secret}}}}]
contexts: [{{name: kind-kind, context: {{cluster: kind, user: me}}}}]
"""


def kubeconfig(tmp_path: Path, server: str = "http://127.0.0.1:1") -> Path:
    """One without a current context."""
    path = tmp_path / "kubeconfig.yaml"
    path.write_text(TEXT.format(server=server))
    return path


def found(path: Path | str, name: str = "kind-kind") -> Context:
    return kube_contexts.find(name, {KUBECONFIG: str(path)})


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A server that answers everything with a status, and nothing more."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_context_is_found_without_a_current_one_and_the_first_file_counts(tmp_path: Path) -> None:
    second = tmp_path / "second.yaml"
    second.write_text(TEXT.format(server="http://other"))
    files = f"{kubeconfig(tmp_path)}:{second}:{tmp_path / 'not-there'}"
    assert found(files).server == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("contexts: [", r"/broken: is no kubeconfig that can be read: .*; correct it"),
        ("- a", r"/broken: is no kubeconfig that can be read: Expected `object`, got `array`"),
        ("", r"/broken: is no kubeconfig that can be read: Expected `object`, got `null`"),
        ("contexts: 5", r"Expected `array \| null`, got `int` - at `\$.contexts`"),
        ("contexts: [{name: a}]", r"/broken: .* missing required field `context`"),
        ("kind: Config", "=kind-kind: names no context of .*/broken; name one that is there: none"),
        (
            "contexts: [{name: kind-kind, context: {cluster: gone}}]",
            "=kind-kind: leads to no API server in .*/broken",
        ),
    ],
)
def test_a_file_that_is_none_of_kubectls_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        found(path)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}: is no kubeconfig that can be read"):
        found(tmp_path)
    with pytest.raises(InputError, match="KUBECONFIG=/not/there: names no file that is there"):
        found("/not/there")


def test_a_server_that_is_not_reached_is_named_with_its_context(tmp_path: Path) -> None:
    message = (
        r"^REKINDLE_E2E_CONTEXT=kind-kind: its API server http://127.0.0.1:1 does not answer: "
        r".*refused.*; see whether `kubectl --context kind-kind get nodes` comes to it$"
    )
    with pytest.raises(InputError, match=message):
        found(kubeconfig(tmp_path)).check()


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, r"does not know its user \(401\); log in anew"),
        (403, r"refuses it \(403\); name a context of an administrator"),
        (404, "answers 404 Not Found; see whether it is one"),
    ],
)
def test_a_server_that_refuses_is_named_with_the_remedy(
    tmp_path: Path, status: int, message: str
) -> None:
    with answering(status) as server, pytest.raises(InputError, match=f"{server} {message}"):
        found(kubeconfig(tmp_path, server)).check()


def test_a_request_to_a_silent_server_ends(
    tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubeconfigs, "ANSWER_SECONDS_MAX", 0.1)
    with pytest.raises(InputError, match=f"{silent} does not answer: .*timed out"):
        found(kubeconfig(tmp_path, silent)).check()
