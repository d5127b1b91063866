"""The webhook's certificate in its Secret, and its authorities in the configuration.

    Secret ──► decide ──► Secret ──► caBundle      by the leader, a step each time
    Secret ──► the pair to present                 by every replica

Two writers cannot spoil it: a Secret or a configuration that has changed since it was read is not
written, and the next turn reads it again. The shell calls `follow` in each replica, `tend` in the
one that acts, every few seconds; `webhook_server` takes `pair`.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Protocol

from rekindle_operator.cluster.api_client import STRATEGIC_MERGE
from rekindle_operator.webhook import certificate_rotation, webhook_configuration
from rekindle_operator.webhook.certificate_rotation import (
    Issued,
    Pair,
    RotationStep,
    StoredCertificates,
)
from rekindle_operator.webhook.injection_spec import Body

SECRET = "rekindle-webhook-certificate"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SETTLE_SECONDS = 60.0


class ObjectAccess(Protocol):
    """The API server, by paths; the shell's own client is one. What it raises goes through."""

    def get(self, path: str) -> Mapping[str, Any] | None:
        """The object, None where there is none."""

    def create(self, path: str, body: Mapping[str, Any]) -> object:
        """Makes an object; raises where it is there already."""

    def replace(self, path: str, body: Mapping[str, Any]) -> object:
        """Puts an object in the place of the version that it names; raises where that is gone."""

    def patch(self, path: str, body: Mapping[str, Any], kind: str) -> object:
        """Changes an object by a patch of a content type."""


def hosts_of(service: str, namespace: str) -> tuple[str, ...]:
    """The name by which the API server calls a Service's webhook."""
    return (f"{service}.{namespace}.svc",)


class CertificateStore:
    """One for each replica. `configuration_name` is that of the MutatingWebhookConfiguration,
    `hosts` are what the certificate is for. For one thread, but for `pair`."""

    def __init__(
        self,
        objects: ObjectAccess,
        namespace: str,
        configuration_name: str,
        hosts: Collection[str],
        *,
        issue: Callable[[Collection[str], datetime], Issued] = certificate_rotation.issue,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._objects = objects
        self._namespace = namespace
        self._configuration = f"{CONFIGURATIONS}/{configuration_name}"
        self._hosts = tuple(hosts)
        self._issue = issue
        self._settle_seconds = settle_seconds
        self._kept = StoredCertificates()
        self._trusted: tuple[bytes, datetime] | None = None

    @property
    def pair(self) -> Pair | None:
        """What is to be presented, as it was last read; None before there is any."""
        current = self._kept.current
        return None if current is None else current.pair

    @property
    def ends(self) -> datetime | None:
        """When the certificate that is presented ends."""
        current = self._kept.current
        return None if current is None else current.ends

    def follow(self) -> None:
        """Read what is to be presented."""
        self._read()

    def tend(self, now: datetime) -> tuple[str, ...]:
        """Do what is due; says what was done: "issue", "stage", "promote", "trust"."""
        secret = self._read()
        found = self._objects.get(self._configuration)
        since = self._trusted_since(found, now)
        step = certificate_rotation.decide(
            self._kept,
            self._hosts,
            now,
            trusted_since=since,
            settle_seconds=self._settle_seconds,
        )
        done = [] if step is RotationStep.KEEP else [self._follow_step(step, secret, now)]
        if found is not None:
            bundle = certificate_rotation.trusted(self._kept, now)
            patch = webhook_configuration.bundle_patch(found, bundle)
            if patch is not None:
                self._objects.patch(self._configuration, patch, STRATEGIC_MERGE)
                done.append("trust")
        return tuple(done)

    def _read(self) -> Body | None:
        secret = self._objects.get(f"{self._secrets}/{SECRET}")
        self._kept = certificate_rotation.from_secret(secret)
        return secret

    def _follow_step(self, step: RotationStep, secret: Body | None, now: datetime) -> str:
        new = (
            self._issue(self._hosts, now)
            if step in (RotationStep.ISSUE, RotationStep.STAGE)
            else None
        )
        kept = certificate_rotation.followed(self._kept, step, new)
        body = certificate_rotation.to_secret(kept, SECRET, self._namespace, secret)
        if secret is None:
            self._objects.create(self._secrets, body)
        else:
            self._objects.replace(f"{self._secrets}/{SECRET}", body)
        self._kept = kept
        return step.value

    def _trusted_since(self, found: Body | None, now: datetime) -> datetime | None:
        """Since when the API server has been seen to trust the staged certificate's authority."""
        staged = self._kept.staged
        bundle = b"" if found is None else webhook_configuration.bundle_of(found)
        if staged is None or staged.authority not in bundle:
            self._trusted = None
        elif self._trusted is None or self._trusted[0] != staged.authority:
            self._trusted = (staged.authority, now)
        return None if self._trusted is None else self._trusted[1]

    @property
    def _secrets(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/secrets"
