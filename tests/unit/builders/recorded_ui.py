"""A server with what a real driver's Spark UI said, or with whatever else a test wants of it.

The bodies are of `tests/integration/streaming_backlog.py`. Their times are moved, so that they were
recorded just now.
"""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import web

RECORDED = Path(__file__).parents[1] / "rekindle_operator/applications/recorded_spark_ui.json"
FORM = "%Y-%m-%dT%H:%M:%S.%fGMT"
TIMES = ("submissionTime", "completionTime")
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@cache
def recorded() -> dict[str, Any]:
    """What was recorded: while a query was `behind`, and once all had `caught_up`."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


@dataclass
class RecordedUi:
    """`picture` is what it shows, of the `queries` of these names, or of all; `ahead` is by how
    many seconds its clock is. `answer` takes the place of all that where there is one. Requests are
    kept in `asked`."""

    picture: str = "behind"
    queries: tuple[str, ...] = ()
    ahead: float = 0.0
    answer: Handler | None = None
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    port: int = 0

    @property
    def now(self) -> float:
        """By its clock."""
        return time.time() + self.ahead

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append((request.path_qs, dict(request.headers)))
        if self.answer is not None:
            return await self.answer(request)
        body = self._body(request.path.removeprefix("/api/v1/applications"))
        if body is None:
            return web.Response(status=404)
        return web.json_response(body, headers={"Date": formatdate(self.now, usegmt=True)})

    def _body(self, path: str) -> Any:
        said = recorded()[self.picture]
        if not path:
            return said["applications"]
        parts = path.split("/")[1:]
        if parts[0] != said["applications"][0]["id"]:
            return None
        if parts[1:] == ["jobs"]:
            jobs = (job for job in said["jobs"] if self._shows(job))
            return [moved(job, self.now - said["now"]) for job in jobs]
        return said["stages"].get(parts[2]) if parts[1] == "stages" else None

    def _shows(self, job: dict[str, Any]) -> bool:
        name = job.get("description", "").partition("\n")[0]
        return not self.queries or name in self.queries


def moved(job: dict[str, Any], seconds: float) -> dict[str, Any]:
    """A job whose times are so much later."""
    by = timedelta(seconds=seconds)
    times = {
        name: (datetime.strptime(job[name], FORM).replace(tzinfo=UTC) + by).strftime(FORM)
        for name in TIMES
        if name in job
    }
    return {**job, **times}


@contextmanager
def serving(ui: RecordedUi) -> Iterator[RecordedUi]:
    """Serve it on the loopback, at any free port, in a thread of its own."""
    loop = asyncio.new_event_loop()

    async def start() -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(ui.handle, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ui.port = runner.addresses[0][1]
        return runner

    runner = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, name="recorded-ui", daemon=True)
    thread.start()
    try:
        yield ui
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30.0)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30.0)
        loop.close()
