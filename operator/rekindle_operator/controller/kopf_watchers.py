"""kopf's handlers: policies, classes, recoveries and SparkApplications become news.

kopf finds out which of these kinds there are, also while it runs, and keeps watching them. Only
`on.event` is used, which puts neither a finalizer nor an annotation on anything. It does not say
when it has told everything, nor what went while it was not connected, so each kind is listed at the
start and every few minutes as well. Decides nothing; `operator_main` starts it.

Why: docs/decisions/0025-kopf-watches-the-small-kinds.md.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import kopf

from rekindle.model.errors import RunError
from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.api.custom_resources import GROUP
from rekindle_operator.cluster import object_kinds, watch_events
from rekindle_operator.cluster.api_client import NOT_FOUND, Api, ApiRefused
from rekindle_operator.cluster.cluster_view import ClusterView
from rekindle_operator.cluster.json_access import ObjectKind
from rekindle_operator.cluster.object_watcher import EventInbox, list_all, news_of
from rekindle_operator.cluster.watch_events import WatchHandler

CENSUS_SECONDS = 300.0
RETRY_SECONDS = 5.0
START_SECONDS_MAX = 30.0
OURS: Mapping[ObjectKind, WatchHandler] = {
    object_kinds.CLASSES: watch_events.CLASSES,
    object_kinds.POLICIES: watch_events.POLICIES,
    object_kinds.RECOVERIES: watch_events.RECOVERIES,
}
SPARK: Mapping[ObjectKind, WatchHandler] = {
    kind: watch_events.APPLICATIONS[group]
    for group, kind in object_kinds.SPARK_APPLICATIONS.items()
}


@dataclass(slots=True)
class KopfWatchers:
    """`take_census` first, then `start`. A watch that is silent for `silence_seconds` is begun
    anew."""

    api: Api
    inbox: EventInbox[ClusterView]
    log: Log
    silence_seconds: float
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def take_census(self) -> None:
        """Tell of all objects now. Raises Unreachable, and RunError where our own kinds are not
        installed."""
        for kind, telling in {**OURS, **SPARK}.items():
            try:
                list_all(self.api, kind, telling, self.inbox, self.log)
            except ApiRefused as refused:
                if refused.status == NOT_FOUND and kind in SPARK:
                    continue  # not everybody has that operator
                raise RunError(
                    where=f"{kind.plural}.{kind.api_version.partition('/')[0]}",
                    what=refused.message,
                    remedy=(
                        "install the definitions: kubectl apply --server-side -f crds/"
                        if refused.status == NOT_FOUND
                        else "give the operator its rights, see docs/install.md"
                    ),
                ) from refused

    def start(self) -> None:
        """Watch until `stop` is called."""
        threading.Thread(target=self._census, name="census", daemon=True).start()
        self._thread = threading.Thread(target=self._watch, name="kopf", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End within seconds."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(START_SECONDS_MAX)

    @property
    def alive(self) -> bool:
        """Whether kopf still runs."""
        return self._thread is not None and self._thread.is_alive()

    def _watch(self) -> None:
        asyncio.run(
            kopf.operator(
                registry=self._registry(),
                settings=_settings(self.silence_seconds),
                standalone=True,
                # Nobody is told of it; by itself kopf takes the user's name, and not every user in
                # a container has one.
                identity=cast(Any, "rekindle"),
                clusterwide=True,
                stop_flag=self._ending,
            )
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        for kind, telling in OURS.items():
            kopf.on.event(GROUP, kind.plural, id=kind.plural, registry=registry)(
                self._handler(kind.name, telling)
            )
        kopf.on.login(id="client", registry=registry)(self._log_in)
        for group, spark in object_kinds.SPARK_APPLICATIONS.items():
            kopf.on.event(group, spark.plural, id=group, registry=registry)(
                self._handler(spark.name, watch_events.APPLICATIONS[group])
            )
        return registry

    def _log_in(self, **rest: Any) -> kopf.ConnectionInfo:
        """With the same credentials as everybody else here; asked again when they have expired."""
        del rest
        configuration = self.api.client.configuration
        header = configuration.get_api_key_with_prefix("BearerToken", "authorization")
        scheme, _, token = (header or "").rpartition(" ")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            scheme=scheme or None,
            token=token or None,
        )

    def _handler(self, kind: str, telling: WatchHandler) -> Callable[..., Any]:
        async def handle(event: kopf.RawEvent, **_: Any) -> None:
            body = dict(event["object"])
            how = telling.gone if event["type"] == "DELETED" else telling.seen
            self.inbox.put(news_of(how, telling, body, kind, self.log))

        return handle

    def _census(self) -> None:
        due = time.monotonic() + CENSUS_SECONDS
        while not self._ending.wait(max(0.0, due - time.monotonic())):
            try:
                self.take_census()
                due = time.monotonic() + CENSUS_SECONDS
            except Exception as trouble:  # the next census is to be taken, whatever this one met
                known = isinstance(trouble, RunError)
                text = str(trouble) if known else f"{type(trouble).__name__}: {trouble}"
                self.log.write("watch-failed", resource="census", text=text)
                due = time.monotonic() + RETRY_SECONDS


def _settings(silence_seconds: float) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.watching.inactivity_timeout = silence_seconds
    return settings
