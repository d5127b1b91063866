"""Looks at SparkApplications and their pods, submits, writes statuses, restarts drivers.

One thread for all applications of the cluster and both groups, level-based: what it does follows
from what the API server has, so one that is started anew goes on.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from rekindle.model.errors import RekindleError, RunError
from submission import apache_submission, kubeflow_submission, spark_submit
from submission.submission_steps import Action, Body, SubmissionState
from testbed import kubeconfigs
from testbed.background_threads import BackgroundThread

LOOK_SECONDS = 1.0
AGAIN_SECONDS = 5.0
REQUEST_SECONDS_MAX = 15.0
KINDS: Mapping[str, ModuleType] = {
    kubeflow_submission.GROUP: kubeflow_submission,
    apache_submission.GROUP: apache_submission,
}
JSON_PATCH = "application/json-patch+json"
NOT_FOUND, BAD_REQUEST, UNPROCESSABLE = 404, 400, 422


class SparkOperators(BackgroundThread):
    """A context manager: inside, SparkApplications are tended as both operators would.

    The kubeconfig is that of somebody who may do everything, with a token: Spark's client does not
    read every kind of key. `folder` gets a folder for each submission, with templates and what
    spark-submit said. What fails is kept in `failures`, and done again after a while: scenarios end
    with the first failure, `python -m submission` goes on.
    """

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        super().__init__("spark-operators")
        self.failures: list[Exception] = []
        self._again_at: dict[str, float] = {}
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._client: Any = kubeconfigs.make_client(kubeconfig)
        self._core: Any = client.CoreV1Api(self._client)
        self._custom: Any = client.CustomObjectsApi(self._client)

    def close(self) -> None:
        """End the thread, and wait for its end."""
        super().close()
        self._client.close()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for group, kind in KINDS.items():
                try:
                    self._look(group, kind)
                except (ApiException, HTTPError):
                    continue  # It may be away, slow, or have another version by now: look again.
                except Exception as error:  # the thread would end, and everybody wait in vain
                    self.failures.append(error)
                    self._ended.wait(AGAIN_SECONDS)

    def _look(self, group: str, kind: ModuleType) -> None:
        """Tend each application of a kind; one that has failed is left alone for a while."""
        for application in self._applications(group, kind):
            uid = application["metadata"]["uid"]
            if time.monotonic() < self._again_at.get(uid, 0.0):
                continue
            try:
                self._tend(kind, application)
            except RekindleError as error:
                self.failures.append(error)
                self._again_at[uid] = time.monotonic() + AGAIN_SECONDS

    def _applications(self, group: str, kind: ModuleType) -> Iterator[dict[str, Any]]:
        try:
            found = self._custom.list_cluster_custom_object(
                group, kind.VERSION, kind.PLURAL, _request_timeout=REQUEST_SECONDS_MAX
            )
        except ApiException as error:
            if error.status != NOT_FOUND:  # the kind is not installed
                raise
            return
        yield from (item for item in found["items"] if _is_there(item))

    def _tend(self, kind: ModuleType, application: dict[str, Any]) -> None:
        namespace = application["metadata"]["namespace"]
        pods = self._pods(namespace, kind.labels(application))
        name = kind.driver_name(application)
        scene = SubmissionState(
            application=application,
            driver=next((pod for pod in pods if pod["metadata"]["name"] == name), None),
            executors=[pod for pod in pods if _role(pod) == "executor"],
            now=time.time(),
            identity=str(uuid.uuid4()),
        )
        step = kind.decide(scene)
        self._act(step.action, kind, scene)
        if step.status is not None:
            self._write(kind, scene, step.status)

    def _write(self, kind: ModuleType, scene: SubmissionState, status: Body) -> None:
        """Write a status. Raises `RunError` for one that the API server takes for wrong."""
        try:
            # Whole, as they do. Not by version: a conflict would have it submit a second time.
            self._custom.patch_namespaced_custom_object_status(
                kind.GROUP,
                kind.VERSION,
                scene.application["metadata"]["namespace"],
                kind.PLURAL,
                scene.name,
                [{"op": "add", "path": "/status", "value": status}],
                _content_type=JSON_PATCH,
                _request_timeout=REQUEST_SECONDS_MAX,
            )
        except ApiException as error:
            if error.status not in (BAD_REQUEST, UNPROCESSABLE):
                raise
            raise RunError(
                where=f"the status of SparkApplication {scene.name}",
                what=f"is refused: {error.body}"[:300],
                remedy="see whether the definition is of another version",
            ) from error

    def _act(self, action: Action, kind: ModuleType, scene: SubmissionState) -> None:
        if action is Action.SUBMIT:
            spark_submit.submit(
                kind.submission(scene.application, scene.identity),
                kubeconfig=self._kubeconfig,
                folder=self._folder / scene.identity,
            )
        elif action is not Action.NOTHING and scene.driver is not None:
            forced = {"grace_period_seconds": 0} if action is Action.FORCE_DRIVER else {}
            self._core.delete_namespaced_pod(
                scene.driver["metadata"]["name"],
                scene.driver["metadata"]["namespace"],
                _request_timeout=REQUEST_SECONDS_MAX,
                **forced,
            )

    def _pods(self, namespace: str, labels: Mapping[str, str]) -> list[Body]:
        answer = self._core.list_namespaced_pod(
            namespace,
            label_selector=",".join(f"{key}={value}" for key, value in labels.items()),
            _preload_content=False,
            _request_timeout=REQUEST_SECONDS_MAX,
        )
        found: list[Body] = json.loads(answer.data)["items"]
        return found


def _is_there(application: Body) -> bool:
    return "deletionTimestamp" not in application["metadata"]


def _role(pod: Body) -> str:
    return str((pod["metadata"].get("labels") or {}).get("spark-role", ""))
