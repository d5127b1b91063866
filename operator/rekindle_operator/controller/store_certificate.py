"""The certificate of the store's servers, where the operator makes it.

    Secret ──► decide ──► Secret, with all authorities that count      by the leader
    Secret ──► authorities, for our own connections and the namespaces' Secrets     by every replica

It needs no store: servers start once the Secret is there, and read a certificate that has changed.
Another authority is trusted for an hour before its certificate is presented, since sidecars learn
of it by their namespace's Secret; `certificate_rotation` has the steps. `wiring` starts it first of
all.
"""

import base64
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from rekindle.model.errors import InputError
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.cluster import api_client, json_access, object_kinds, work_queue
from rekindle_operator.webhook import certificate_rotation
from rekindle_operator.webhook.certificate_rotation import Issued, RotationStep, StoredCertificates
from rekindle_operator.webhook.injection_spec import Body

SECRET = "rekindle-zookeeper-tls"
# Servers trust each other by it: the authority of the present certificate, and of others around it.
BUNDLE = "trusted-ca.crt"
# Secrets of namespaces are put right within 5 minutes, and mounted within 2 more.
SETTLE_SECONDS = 3_600.0
TEND_SECONDS, FIRST_SECONDS = 5.0, 1.0
ISSUE = partial(certificate_rotation.issue, of="store", usages=certificate_rotation.PEER)


def hosts_of(store: str) -> tuple[str, ...]:
    """The names in `HOST:PORT` of each server, as certificates have them."""
    hosts = (server.rpartition(":")[0] or server for server in store.split(","))
    return tuple(host.strip("[]").rstrip(".") for host in hosts)


def _nobody() -> bool:
    return False


@dataclass(slots=True)
class StoreCertificate:
    """`hosts` are the names of the servers; the replica that `acts` writes, all others read."""

    api: api_client.Api
    namespace: str
    hosts: Collection[str]
    log: Log
    acts: Callable[[], bool] = _nobody
    issue: Callable[[Collection[str], datetime], Issued] = ISSUE
    settle_seconds: float = SETTLE_SECONDS
    _kept: StoredCertificates = field(default_factory=StoredCertificates)
    upkeep: work_queue.UpkeepThread = field(init=False)
    _seen: tuple[bytes, datetime] | None = None

    def __post_init__(self) -> None:
        self.upkeep = work_queue.UpkeepThread(
            "store-certificate",
            lambda: self.turn(datetime.now(UTC)),
            lambda: FIRST_SECONDS if self._kept.current is None else TEND_SECONDS,
            lambda text: self.log.write("store-certificate-failed", text=text),
        )

    @property
    def ends(self) -> datetime | None:
        """When the present certificate ends; None while there is none."""
        return None if self._kept.current is None else self._kept.current.ends

    def authorities(self) -> str:
        """All that may have signed what servers present, in PEM. Raises InputError before there is
        any."""
        found = certificate_rotation.trusted(self._kept, datetime.now(UTC))
        if not found:
            raise InputError(
                where=f"Secret {self.namespace}/{SECRET}",
                what="has no certificate yet",
                remedy="wait until an operator acts, and see in its log why it makes none",
            )
        return found.decode("ascii")

    def turn(self, now: datetime) -> None:
        """Read it, and do what is due. Raises what the API server says."""
        secret = self.api.get(api_client.path_of(object_kinds.SECRETS, self.namespace, SECRET))
        self._kept = certificate_rotation.from_secret(secret)
        if not self.acts():
            return
        step = certificate_rotation.decide(
            self._kept,
            self.hosts,
            now,
            trusted_since=self._staged_since(now),
            settle_seconds=self.settle_seconds,
        )
        new = (
            self.issue(self.hosts, now)
            if step in (RotationStep.ISSUE, RotationStep.STAGE)
            else None
        )
        kept = certificate_rotation.followed(self._kept, step, new)
        bundle = base64.b64encode(certificate_rotation.trusted(kept, now)).decode()
        if step is RotationStep.KEEP and json_access.text(secret, "data", BUNDLE) == bundle:
            return
        self._write(secret, kept, bundle)
        self._kept = kept
        self.log.write("store-certificate", done=step.value, ends=str(self.ends))

    def _write(self, secret: Body | None, kept: StoredCertificates, bundle: str) -> None:
        body = certificate_rotation.to_secret(kept, SECRET, self.namespace, secret)
        body["data"][BUNDLE] = bundle
        path = api_client.path_of(object_kinds.SECRETS, self.namespace)
        if secret is None:
            self.api.create(path, body)
        else:
            self.api.replace(f"{path}/{SECRET}", body)

    def _staged_since(self, now: datetime) -> datetime | None:
        """Since when this process has seen the staged certificate, and so told of its authority."""
        staged = self._kept.staged
        if staged is None:
            self._seen = None
        elif self._seen is None or self._seen[0] != staged.authority:
            self._seen = (staged.authority, now)
        return None if self._seen is None else self._seen[1]
