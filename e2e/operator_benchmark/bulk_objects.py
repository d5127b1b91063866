"""Many objects at once, written into etcd as the API server would have stored them.

A hundred thousand pods through the API server take a small machine most of an hour, and who watches
cannot tell the difference: the API server reads JSON from its store as well as what it writes
itself, and fills in defaults. Nothing is checked here. `cluster_objects` uses it.
"""

import asyncio
import base64
import itertools
import json
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from rekindle.model.errors import RunError
from testbed.control_plane import ControlPlane
from testbed.test_programs import ETCD

Body = dict[str, Any]
# etcd takes no more in one transaction
BATCH = 128
WRITERS = 3
ADDRESS = "--advertise-client-urls="


def address(control_plane: ControlPlane) -> str:
    """The URL of its etcd, from the command line that it was started with."""
    for process in control_plane.processes(ETCD):
        for word in Path(f"/proc/{process}/cmdline").read_text().split("\0"):
            if word.startswith(ADDRESS):
                return word.removeprefix(ADDRESS)
    raise RunError(where=ETCD, what="says no address", remedy="see whether it runs")


def stored(body: Body) -> Body:
    """An object with what the API server gives each: a UID and a moment."""
    made = {
        "uid": str(uuid.uuid4()),
        "creationTimestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    return {**body, "metadata": {**body["metadata"], **made}}


async def write(url: str, objects: Iterable[tuple[str, Body]]) -> None:
    """Put objects (path below /registry, object). Raises RunError for what etcd refuses."""
    waiting = iter(objects)
    async with aiohttp.ClientSession(url) as session:

        async def work() -> None:
            while batch := list(itertools.islice(waiting, BATCH)):
                await _put(session, batch)

        await asyncio.gather(*(work() for _ in range(WRITERS)))


async def _put(session: aiohttp.ClientSession, batch: list[tuple[str, Body]]) -> None:
    puts = [
        {"requestPut": {"key": _coded(f"/registry/{path}"), "value": _coded(json.dumps(body))}}
        for path, body in batch
    ]
    async with session.post("/v3/kv/txn", json={"success": puts}) as answer:
        if not answer.ok:
            text = await answer.text()
            raise RunError(where=ETCD, what=f"{answer.status}: {text}", remedy="see its log")


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
