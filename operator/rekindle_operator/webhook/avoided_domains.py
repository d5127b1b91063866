"""The domains that new executors avoid, as the operator tells the webhook: a ConfigMap.

    data: {avoided.json: '{"version": 1, "at": "...", "groups": [
        {"domains": [{"key": "zone", "value": "a"}], "buckets": ["pod/team/UID", ...]}]}'}

The operator that acts writes it when an application has lost a domain, and again every
`RENEW_SECONDS` while there is anything in it. The webhook forgets what has not been renewed for
`VALID_SECONDS` by its own clock, so an operator that is gone keeps nobody out of a domain. A record
that is listed again was not renewed. Of the first record that it reads, a webhook knows only what
the record says, and ignores one of more than `FIRST_AGE_SECONDS_MAX`. Pure; `webhook_upkeep` writes
it, `policy_watch` reads it.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from rekindle.model.errors import InputError
from rekindle_operator.cluster.json_access import Body, text
from rekindle_operator.detection.failure_domains import Domain

NAME = "rekindle-avoided-domains"
KEY = "avoided.json"
VERSION = 1
RENEW_SECONDS = 60.0
VALID_SECONDS = 180.0
# `at` is by the clock of the operator's node, the age by that of the webhook's. A record that has
# just been renewed must count although the clocks differ: VALID_SECONDS, and 12 minutes for them.
# Clocks that differ by more break certificates and tokens as well.
FIRST_AGE_SECONDS_MAX = 900.0
# Some 100 bytes each; the API server keeps objects of 1 MiB. The newest applications are left out.
BUCKETS_MAX = 8_000

Avoided = Mapping[str, tuple[Domain, ...]]


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


def to_config_map(avoided: Avoided, namespace: str, at: datetime) -> dict[str, Any]:
    """The ConfigMap for what is avoided."""
    by_domains: dict[tuple[Domain, ...], list[str]] = defaultdict(list)
    for bucket in list(avoided)[:BUCKETS_MAX]:
        by_domains[tuple(avoided[bucket])].append(bucket)
    groups = tuple(BucketGroup(key, tuple(sorted(by_domains[key]))) for key in sorted(by_domains))
    record = msgspec.json.encode(AvoidedRecord(VERSION, at, groups)).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": namespace},
        "data": {KEY: record},
    }


def from_config_map(body: Body) -> AvoidedRecord:
    """The record in it. InputError for a ConfigMap without one."""
    written = text(body, "data", KEY)
    try:
        return msgspec.json.decode(written.encode(), type=AvoidedRecord)
    except msgspec.MsgspecError as error:
        raise InputError(
            where=f"ConfigMap {NAME}, {KEY}",
            what=f"is no record of avoided domains ({error})",
            remedy="delete the ConfigMap; the operator writes another one",
        ) from error
