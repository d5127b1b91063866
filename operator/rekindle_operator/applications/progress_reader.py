"""Reads how far streaming queries are from the Spark UIs of drivers, one driver in one work item.

    followed drivers ──► work queue of its own ──► GET, small and short ──► stream_progress
    deciding thread  ◄──────────────── inbox ◄──── a reading of each ◄──────────┘

The deciding thread names the drivers and takes readings; it waits for none. A driver belongs to
somebody else: its answer has limits of size and time, its redirects are not followed, it gets no
credential, and only numbers and names of queries are taken from it.

Why: docs/decisions/0060-catch-up-is-read-from-the-jobs-of-a-driver.md.
"""

import asyncio
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar

import aiohttp
import msgspec

from rekindle.model.errors import RekindleError
from rekindle.protocol.store_paths import Place
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.applications import stream_progress
from rekindle_operator.applications.stream_progress import (
    CatchUp,
    IncidentTimes,
    ProgressReading,
    SparkJob,
    SparkStage,
)
from rekindle_operator.cluster.pods import PodSeen
from rekindle_operator.cluster.work_queue import WorkQueue

# So many drivers are read at a time: with the limit of a body this bounds the memory.
READS_MAX = 8
CONNECT_SECONDS_MAX = 2.0
READ_SECONDS_MAX = 10.0
BODY_BYTES_MAX = 4 * 1024 * 1024
PAUSE_SECONDS = 5.0
PAUSE_SECONDS_MAX = 20.0
ROWS_KEPT_MAX = 1_000
UI_PORT = 4040
UI_PORT_MIN = 1_024
API = "/api/v1/applications"
SPARK_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
REFUSED = (401, 403)
HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}
Decoded = TypeVar("Decoded")


class _SparkApplication(msgspec.Struct, frozen=True):
    id: str


class _UnreadError(Exception):
    """Why a driver was not read; `is_final`: it will not be at the next attempt either."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


@dataclass(slots=True)
class _FollowedDriver:
    """A driver whose pods are back. Moments of the incident are of `time.time`, `read_at` of
    `time.monotonic`: when it was last read, or began to be followed. `rows` (stage -> rows) are of
    batches that have ended, None for a stage that Spark lists no more."""

    uid: str
    address: str
    port: int
    lost_at: float
    back_at: float
    read_at: float
    failures: int = 0
    rows: dict[int, int | None] = field(default_factory=dict)


@dataclass(slots=True)
class ProgressReader:
    """`answer` takes a reading to the deciding thread, which calls all other methods."""

    queue: WorkQueue
    log: Log
    answer: Callable[[Callable[[], None]], None]
    _followed: dict[Place, _FollowedDriver] = field(default_factory=dict)
    _readings: dict[Place, ProgressReading] = field(default_factory=dict)

    def follow(self, place: Place, driver: PodSeen, lost_at: float, back_at: float) -> None:
        """Have the driver of an application read again and again. Another driver, another address
        of it, or another moment since which its pods are back, begins again."""
        known = self._followed.get(place)
        found = driver.uid, driver.ip, back_at
        if known is not None and (known.uid, known.address, known.back_at) == found:
            return
        port = driver.ui_port or UI_PORT
        followed = _FollowedDriver(
            driver.uid, driver.ip, port, lost_at, back_at, read_at=time.monotonic()
        )
        self._followed[place] = followed
        self._readings.pop(place, None)
        if port < UI_PORT_MIN:
            text = f"the port {port} of its driver's UI is one of the system"
            self._readings[place] = ProgressReading(unread=text, is_final=True)
        elif driver.ip:
            self.queue.leave(f"progress {place}", partial(self._read, place, followed))

    def catch_up(
        self, place: Place, driver: PodSeen | None, lost_at: datetime | None, back_at: datetime
    ) -> CatchUp:
        """Whether an application has caught up whose pods are back since a moment."""
        if driver is not None:
            at = back_at.timestamp()
            self.follow(place, driver, at if lost_at is None else lost_at.timestamp(), at)
        back_seconds = time.time() - back_at.timestamp()
        return stream_progress.catch_up(self._newest(place), back_seconds)

    def _newest(self, place: Place) -> ProgressReading:
        """The newest reading; before the first one it says so."""
        driver = self._followed.get(place)
        waited = 0.0 if driver is None else time.monotonic() - driver.read_at
        first = ProgressReading(unread="its driver has not been read yet", unread_seconds=waited)
        return self._readings.get(place, first)

    def keep_only(self, places: Collection[Place]) -> None:
        """Follow no other application any more."""
        for place in self._followed.keys() - set(places):
            del self._followed[place]
            self._readings.pop(place, None)

    def clear(self) -> None:
        """Another operator acts."""
        self.queue.clear()
        self._followed.clear()
        self._readings.clear()

    def _read(self, place: Place, driver: _FollowedDriver) -> float | None:
        """A work item: one reading, and after how many seconds the next one is due."""
        if self._followed.get(place) is not driver:
            return None
        try:
            reading = asyncio.run(_reading(driver))
            driver.failures, driver.read_at = 0, time.monotonic()
        except _UnreadError as trouble:
            driver.failures += 1
            reading = ProgressReading(
                unread=str(trouble),
                is_final=trouble.is_final,
                unread_seconds=time.monotonic() - driver.read_at,
            )
        self.answer(partial(self._take, place, driver, reading))
        if reading.is_final:
            return None
        return min(PAUSE_SECONDS * (1 << min(driver.failures, 4)), PAUSE_SECONDS_MAX)

    def _take(self, place: Place, driver: _FollowedDriver, reading: ProgressReading) -> None:
        if self._followed.get(place) is not driver:
            return
        before = self._readings.get(place)
        if reading.unread and (before is None or before.unread != reading.unread):
            self.log.write("progress-unread", application=str(place), text=reading.unread)
        self._readings[place] = reading


async def _reading(driver: _FollowedDriver) -> ProgressReading:
    """What a driver says now. Raises _UnreadError."""
    timeout = aiohttp.ClientTimeout(total=READ_SECONDS_MAX, sock_connect=CONNECT_SECONDS_MAX)
    host = f"[{driver.address}]" if ":" in driver.address else driver.address
    try:
        async with (
            asyncio.timeout(READ_SECONDS_MAX),
            aiohttp.ClientSession(
                f"http://{host}:{driver.port}",
                timeout=timeout,
                headers=HEADERS,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session,
        ):
            return await _judged(session, driver)
    except TimeoutError as error:
        text = f"the Spark UI of its driver does not answer within {READ_SECONDS_MAX:g} s"
        raise _UnreadError(text) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # the words of an error may be the server's, so its kind is enough
        text = f"the Spark UI of its driver cannot be reached ({type(error).__name__})"
        raise _UnreadError(text) from error


async def _judged(session: aiohttp.ClientSession, driver: _FollowedDriver) -> ProgressReading:
    listed = await _get(session, f"{API}?limit=1", list[_SparkApplication])
    if not listed.value or not SPARK_ID.fullmatch(listed.value[0].id):
        raise _UnreadError("the Spark UI of its driver names no application")
    path = f"{API}/{listed.value[0].id}"
    jobs = await _get(session, f"{path}/jobs", list[SparkJob])
    try:
        queries = stream_progress.queries_of(jobs.value)
    except RekindleError as error:
        raise _UnreadError(str(error)) from error
    times = _by_its_clock(driver, jobs.at)
    wanted = stream_progress.rows_wanted(queries, times)
    for stage in wanted:
        if stage not in driver.rows:
            await _add_rows(session, f"{path}/stages/{stage}?details=false", stage, driver.rows)
    while len(driver.rows) > ROWS_KEPT_MAX:
        del driver.rows[next(iter(driver.rows))]
    counted = stream_progress.with_rows(queries, driver.rows)
    return ProgressReading(tuple(stream_progress.judge_stream(query, times) for query in counted))


async def _add_rows(
    session: aiohttp.ClientSession, path: str, stage: int, rows: dict[int, int | None]
) -> None:
    """Rows of a stage that has ended. Spark forgets the oldest stages, before their jobs."""
    try:
        attempts = await _get(session, path, list[SparkStage])
    except _UnreadError as error:
        if error.is_final:
            raise
        rows[stage] = None
        return
    rows[stage] = sum(attempt.input_records for attempt in attempts.value)


def _by_its_clock(driver: _FollowedDriver, at: float) -> IncidentTimes:
    """The incident by the driver's clock, which shows `at` now."""
    ahead = at - time.time()
    return IncidentTimes(at, driver.lost_at + ahead, driver.back_at + ahead)


@dataclass(frozen=True, slots=True)
class _Answered:
    """A body, and when it was made by the server's clock."""

    value: Any
    at: float


async def _get(session: aiohttp.ClientSession, path: str, kind: type[Decoded]) -> _Answered:
    async with session.get(path, allow_redirects=False) as response:
        if response.status in REFUSED:
            text = f"the Spark UI of its driver wants to know who asks ({response.status})"
            raise _UnreadError(text, is_final=True)
        if 300 <= response.status < 400:
            text = "the Spark UI of its driver sends its readers elsewhere, as one with TLS does"
            raise _UnreadError(text, is_final=True)
        if response.status != 200:
            raise _UnreadError(f"the Spark UI of its driver answers with {response.status}")
        body = await _body(response)
        at = _moment(response.headers.get("Date"))
    try:
        return _Answered(msgspec.json.decode(body, type=kind), at)
    except (msgspec.DecodeError, RecursionError) as error:
        text = "the Spark UI of its driver answers with something else than its status API"
        raise _UnreadError(text) from error


async def _body(response: aiohttp.ClientResponse) -> bytes:
    found = bytearray()
    async for part in response.content.iter_any():
        found += part
        if len(found) > BODY_BYTES_MAX:
            mebibytes = BODY_BYTES_MAX // 2**20
            raise _UnreadError(f"the Spark UI of its driver answers with over {mebibytes} MiB")
    return bytes(found)


def _moment(date: str | None) -> float:
    """The server's `Date`; our own clock without one."""
    try:
        return time.time() if date is None else parsedate_to_datetime(date).timestamp()
    except (OverflowError, TypeError, ValueError):
        return time.time()
