"""What the operator tells the webhook: domains that new executors avoid, and pods that wait.

    data: {avoided.json: '{"version": 1, "at": "...", "groups": [
        {"domains": [{"key": "zone", "value": "a"}], "buckets": ["pod/team/UID", ...]}]}',
           waiting.json: '{"version": 1, "buckets": ["pod/team/UID", ...]}'}

The operator that acts writes this ConfigMap when an application has lost a domain, or waits for its
turn, and again every `RENEW_SECONDS` while there is anything in it. The webhook ignores a record
`VALID_SECONDS` after it was written, also one that has just started, so an operator that is gone
keeps nobody out of a domain, and no new pod from its node. A record that is listed again was not
renewed. `at` holds for both, which are written together. Pure; `webhook_upkeep` writes it,
`policy_watch` reads it.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec

from rekindle.model.errors import InputError
from rekindle_operator.cluster import application_matching
from rekindle_operator.cluster.json_access import Body, text
from rekindle_operator.detection.failure_domains import HOSTNAME, Domain

NAME = "rekindle-avoided-domains"
KEY, WAITING_KEY = "avoided.json", "waiting.json"
VERSION = 1
RENEW_SECONDS = 60.0
# `at` is by the clock of the operator's node, the age by that of the webhook's. Where the first is
# behind, a record counts as written when the webhook's watch was last current without it, a minute
# ago at most; the one that a webhook lists as it starts may not count. Where it is ahead, a record
# that is seen late counts longer, by so much at most.
VALID_SECONDS = 180.0
# The API server keeps objects of 1 MiB: so much of it is for either record. What does not fit is
# left out: of each application its nodes first, which stand in domains mostly, then the newest
# applications. Pods of those that are left out do not wait.
AVOIDED_BYTES_MAX, WAITING_BYTES_MAX = 700_000, 300_000
# Two of each SparkApplication and three of each other one, of some 50 to 100 bytes.
BUCKETS_MAX, WAITING_MAX = 8_000, 6_000
# Nodes of an application that are named one by one: all, and fewer and fewer until the record fits.
NODES_MAX = (sys.maxsize, 1_000, 100, 10, 0)
# Of a domain in the record: what stands around its key and value.
DOMAIN_BYTES_MIN = len('{"key":"","value":""}')

Avoided = Mapping[str, tuple[Domain, ...]]
Record = TypeVar("Record", "AvoidedRecord", "WaitingRecord")


class BucketGroup(msgspec.Struct, frozen=True):
    """Executors in these buckets (`application_matching.bucket`) avoid these domains."""

    domains: tuple[Domain, ...]
    buckets: tuple[str, ...]


class AvoidedRecord(msgspec.Struct, frozen=True):
    """All of them; `at` is when it was written, so that a renewal is a change."""

    version: int
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    groups: tuple[BucketGroup, ...]

    @property
    def avoided(self) -> dict[str, tuple[Domain, ...]]:
        """What is avoided, by bucket."""
        return {bucket: group.domains for group in self.groups for bucket in group.buckets}


class WaitingRecord(msgspec.Struct, frozen=True):
    """New pods in these buckets wait for their turn at our gate."""

    version: int
    buckets: tuple[str, ...]


def to_config_map(
    avoided: Avoided, namespace: str, at: datetime, waiting: Iterable[str] = ()
) -> dict[str, Any]:
    """The ConfigMap for what is avoided, and for whose pods wait (buckets)."""
    data = {KEY: _avoided_record(avoided, at).decode()}
    buckets = tuple(_fitting(sorted(waiting, key=_named_first)[:WAITING_MAX]))
    if buckets:
        data[WAITING_KEY] = msgspec.json.encode(WaitingRecord(VERSION, buckets)).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": namespace},
        "data": data,
    }


def _avoided_record(avoided: Avoided, at: datetime) -> bytes:
    """The record with as much as there is room for."""
    named = list(avoided)[:BUCKETS_MAX]
    for nodes_max, count in _details(len(named)):
        kept = {one: _shortened(avoided[one], nodes_max) for one in named[:count]}
        # what is far too large is not written to be measured
        if sum(map(len, {*kept.values()})) * DOMAIN_BYTES_MIN > AVOIDED_BYTES_MAX:
            continue
        found = _encoded(kept, at)
        if len(found) <= AVOIDED_BYTES_MAX:
            break
    return found


def _details(count: int) -> Iterator[tuple[int, int]]:
    """How many nodes of each application may be in the record, and how many buckets: all at first,
    and none in the end."""
    yield from ((nodes_max, count) for nodes_max in NODES_MAX)
    while count:
        count //= 2
        yield 0, count


def _encoded(avoided: Avoided, at: datetime) -> bytes:
    by_domains: dict[tuple[Domain, ...], list[str]] = defaultdict(list)
    for bucket, domains in avoided.items():
        by_domains[tuple(domains)].append(bucket)
    groups = tuple(BucketGroup(key, tuple(sorted(by_domains[key]))) for key in sorted(by_domains))
    return msgspec.json.encode(AvoidedRecord(VERSION, at, groups))


def _shortened(domains: tuple[Domain, ...], nodes_max: int) -> tuple[Domain, ...]:
    """So many nodes, and all that are none."""
    nodes = [domain for domain in domains if domain.key == HOSTNAME]
    if len(nodes) <= nodes_max:
        return domains
    others = (domain for domain in domains if domain.key != HOSTNAME)
    return tuple(sorted((*others, *nodes[:nodes_max])))


def _named_first(bucket: str) -> tuple[bool, str]:
    """Pods that an owner tells from others have their application's name as well, mostly."""
    return bucket.startswith(f"{application_matching.OWNER}/"), bucket


def _fitting(buckets: Iterable[str]) -> Iterator[str]:
    """Those that there is room for in the record of pods that wait."""
    left = WAITING_BYTES_MAX
    for bucket in buckets:
        left -= len(msgspec.json.encode(bucket)) + 1
        if left < 0:
            return
        yield bucket


def from_config_map(body: Body) -> AvoidedRecord:
    """The record of avoided domains in it. InputError for a ConfigMap without one."""
    return _read(body, KEY, AvoidedRecord, "avoided domains")


def waiting_buckets(body: Body) -> frozenset[str]:
    """Buckets whose new pods wait for their turn. InputError for a ConfigMap that does not say it;
    one without a word of it says that there are none."""
    if not text(body, "data", WAITING_KEY):
        return frozenset()
    return frozenset(_read(body, WAITING_KEY, WaitingRecord, "pods that wait").buckets)


def _read(body: Body, key: str, type_: type[Record], what: str) -> Record:
    try:
        return msgspec.json.decode(text(body, "data", key).encode(), type=type_)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(
            where=f"ConfigMap {NAME}, {key}",
            what=f"is no record of {what} ({error})",
            remedy="delete the ConfigMap; the operator writes another one",
        ) from error
