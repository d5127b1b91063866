"""Whether a Spark master answers, before anything is started that would wait for it for long.

Spark itself tries a standalone master for a minute, and prints a page for each attempt.
"""

import re
import socket
import time
from urllib.parse import urlsplit

from rekindle.model.errors import InputError, RunError

STANDALONE = re.compile(r"spark://[^\s/,]+:\d{1,5}(,[^\s/,]+:\d{1,5})*")
KUBERNETES = re.compile(r"k8s://\S+")
ANSWER_SECONDS_MAX = 12.0
RETRY_SECONDS = 0.5


def is_kubernetes(master: str) -> bool:
    """Say whether a master is the API server of a Kubernetes cluster."""
    return KUBERNETES.fullmatch(master) is not None


def check(master: str | None, *, submitted: bool) -> None:
    """Accept only a master whose executors are processes of their own.

    `submitted`: spark-submit has started this process and knows the master already. Raises
    `InputError`.
    """
    if submitted:
        if master is not None:
            raise InputError(
                where="--master",
                what="was said to spark-submit already",
                remedy="leave it out here",
            )
        return
    if master is None:
        raise InputError(
            where="--master",
            what="is missing",
            remedy="give spark://HOST:PORT or k8s://https://HOST:PORT, or --local 4 for a cluster "
            "on this machine, or start this with spark-submit",
        )
    if (STANDALONE.fullmatch(master) or is_kubernetes(master)) and _has_addresses(master):
        return
    what = f"is {master!r:.60}"
    if master.startswith("local"):
        what += ", which has no executors that could be lost and come back"
    raise InputError(
        where="--master",
        what=what,
        remedy="give spark://HOST:PORT or k8s://https://HOST:PORT, or --local 4",
    )


def await_answer(master: str, limit_seconds: float = ANSWER_SECONDS_MAX) -> None:
    """Wait until one of the addresses of a master takes a connection.

    Raises `RunError` when none has within the limit.
    """
    end = time.monotonic() + limit_seconds
    while True:
        refusals = [why for address in _addresses(master) if (why := _refusal(*address))]
        if len(refusals) < len(_addresses(master)):
            return
        if time.monotonic() > end:
            raise RunError(
                where=f"--master {master}",
                what=f"does not answer ({'; '.join(dict.fromkeys(refusals))})",
                remedy="start the master, or name another one",
            )
        time.sleep(RETRY_SECONDS)


def _addresses(master: str) -> list[tuple[str, int]]:
    if is_kubernetes(master):
        url = urlsplit(master.removeprefix("k8s://"))
        if url.hostname is None:
            url = urlsplit(f"https://{master.removeprefix('k8s://')}")
        return [(url.hostname or "", url.port or (80 if url.scheme == "http" else 443))]
    pairs = (part.rpartition(":") for part in master.removeprefix("spark://").split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def _has_addresses(master: str) -> bool:
    """Whether the addresses can be read: a port may be no number, or too large for one."""
    try:
        return all(0 < port < 1 << 16 for _, port in _addresses(master))
    except ValueError:
        return False


def _refusal(host: str, port: int) -> str:
    """Why an address takes no connection; empty where it does."""
    try:
        socket.create_connection((host, port), timeout=RETRY_SECONDS * 4).close()
    except (OSError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""
