"""Calls on a cluster that runs in another process: one order a connection, one answer to it.

An order is a line of JSON, `{"order": ..., ...}`; the answer is `{"answer": TEXT}`, or the parts of
the error that the cluster's process met. Whatever is wrong with an order, the cluster outlives it.
cluster_commands.py has both ends.
"""

import json
import socket
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from rekindle.model.errors import InputError, RekindleError, RunError
from testbed import process_owners
from testbed.cluster import cluster_lock

Order = Mapping[str, Any]
ORDER_BYTES_MAX = 1 << 20
WHAT_MAX = 200
CALLER_SECONDS_MAX = 10.0
# An order waits for those before it, and nodes may take minutes to become Ready.
ANSWER_SECONDS_MAX = 1_800.0
_KINDS = {"InputError": InputError, "RunError": RunError}


class ControlSocket:
    """Where orders come in; a context manager, inside of which `serve` answers them."""

    def __init__(self, path: Path, carry_out: Callable[[Order], str]) -> None:
        self._path = path
        self._carry_out = carry_out
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> Self:
        self._path.unlink(missing_ok=True)
        self._socket.bind(str(self._path))
        self._path.chmod(0o600)
        self._socket.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def serve(self) -> None:
        """Wait for one caller, and answer its order."""
        caller, _ = self._socket.accept()
        caller.settimeout(CALLER_SECONDS_MAX)
        # A caller that says nothing, or has not waited for the answer, is no fault of ours.
        with caller, suppress(OSError), caller.makefile("rwb") as lines:
            if line := lines.readline(ORDER_BYTES_MAX):
                lines.write(self._answer(line))
                lines.flush()

    def _answer(self, line: bytes) -> bytes:
        try:
            answer = {"answer": self._carry_out(json.loads(line))}
        except RekindleError as error:
            parts = {"where": error.where, "what": error.what, "remedy": error.remedy}
            answer = {"error": type(error).__name__, **parts}
        except Exception as error:  # a defect, or what the API server refuses
            traceback.print_exception(error)
            said = " ".join(f"{type(error).__name__}: {error}".split())
            answer = {"where": "the cluster's process", "what": f"has met {said[:WHAT_MAX]}"}
        return f"{json.dumps(answer)}\n".encode()


def send(path: Path, order: Order) -> str:
    """What the cluster's process answers. Raises the error that it met; `InputError` without it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(ANSWER_SECONDS_MAX)
        try:
            caller.connect(str(path))
        except PermissionError as error:
            raise cluster_lock.not_yours() from error
        except OSError as error:
            raise _silence() from error
        answer = _ask(caller, order)
    if "answer" in answer:
        return str(answer["answer"])
    kind = _KINDS.get(answer.get("error", ""), RunError)
    raise kind(
        where=answer.get("where", "the cluster's process"),
        what=answer.get("what", "has ended before it answered"),
        remedy=answer.get("remedy", "see what it has said"),
    )


def _silence() -> InputError:
    """Why no cluster takes orders."""
    owner = cluster_lock.owner()
    if owner is None:
        return InputError(
            where=cluster_lock.WHERE,
            what="none runs here",
            remedy="start one with `python -m testbed cluster up`",
        )
    return InputError(
        where=cluster_lock.WHERE,
        what=f"{process_owners.described(owner)} has one that takes no orders: only one of "
        "`python -m testbed cluster up` does, once it is up",
        remedy="wait until it is up or has ended, or end it with `python -m testbed cluster down`",
    )


def _ask(caller: socket.socket, order: Order) -> dict[str, str]:
    """The parts of the answer; none when the cluster's process has ended before it."""
    try:
        with caller.makefile("rwb") as lines:
            lines.write(f"{json.dumps(order)}\n".encode())
            lines.flush()
            answer: dict[str, str] = json.loads(lines.readline() or b"{}")
            return answer
    except TimeoutError:
        return {"what": f"has not answered within {ANSWER_SECONDS_MAX:.0f} s"}
    except ConnectionError:
        return {}
