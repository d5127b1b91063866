"""What becomes of submissions that fail: they are told, done again, and hold up nobody else."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from rekindle.model.errors import RunError
from rekindle_local import process_sets, spark_distribution
from rekindle_local.spark_distribution import Distribution
from submission import kubeflow_submission, spark_submit, submission_loop
from submission.spark_submit import Submission
from submission.submission_loop import SparkOperators
from testbed import kubeconfigs

EXAMPLE = Path(__file__).parents[4] / "examples" / "kubernetes" / "kubeflow.yaml"
AGAIN_SECONDS = 0.2


class Applications:
    """An API server that has applications of kubeflow, and no pod."""

    def __init__(self, *names: str) -> None:
        self.items = [yaml.safe_load(EXAMPLE.read_text()) for _ in names]
        for item, name in zip(self.items, names, strict=True):
            item["metadata"] |= {"name": name, "uid": name, "namespace": "factory"}

    def list_cluster_custom_object(self, group: str, *_: str, **__: Any) -> dict[str, Any]:
        return {"items": self.items if group == kubeflow_submission.GROUP else []}

    def patch_namespaced_custom_object_status(self, *given: Any, **_: Any) -> None:
        *_, name, (operation,) = given
        (item,) = (item for item in self.items if item["metadata"]["name"] == name)
        item["status"] = operation["value"]

    def list_namespaced_pod(self, *_: str, **__: Any) -> Any:
        return SimpleNamespace(data=json.dumps({"items": []}))


class Spark:
    """A client of Spark that fails for some applications."""

    def __init__(self, **errors: Exception) -> None:
        self.errors = errors
        self.submitted: list[tuple[str, float]] = []

    def submit(self, submission: Submission, **_: Any) -> None:
        self.submitted.append((submission.name, time.monotonic()))
        if submission.name in self.errors:
            raise self.errors[submission.name]

    def moments(self, name: str) -> list[float]:
        return [at for submitted, at in self.submitted if submitted == name]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    authority = tmp_path / "authority"
    authority.touch()
    credential = kubeconfigs.token_credential("token")
    path, server = tmp_path / "kubeconfig", "https://127.0.0.1:1"
    return kubeconfigs.write_kubeconfig(
        path, server=server, authority=authority, user="me", credential=credential
    )


def operators(
    kubeconfig: Path, applications: Applications, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> SparkOperators:
    monkeypatch.setattr(submission_loop, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(submission_loop, "AGAIN_SECONDS", AGAIN_SECONDS)
    monkeypatch.setattr(spark_submit, "submit", spark.submit)
    found = SparkOperators(kubeconfig, kubeconfig.parent / "submissions")
    found._core = found._custom = applications
    return found


def test_an_application_that_fails_holds_up_no_other_and_is_submitted_again(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RunError(where="spark-submit", what="has failed", remedy="see its log")
    applications, spark = Applications("bad", "good"), Spark(bad=error)
    with operators(kubeconfig, applications, spark, monkeypatch) as tended:
        assert process_sets.await_condition(lambda: len(spark.moments("bad")) > 1, limit_seconds=30)
    first, again, *_ = spark.moments("bad")
    (good,) = spark.moments("good")
    assert good < again
    assert again - first >= AGAIN_SECONDS
    assert tended.failures[:2] == [error, error]


def test_what_nobody_has_thought_of_is_told_and_the_rest_goes_on(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ValueError("strange")
    applications, spark = Applications("good", "bad"), Spark(bad=error)
    with operators(kubeconfig, applications, spark, monkeypatch) as tended:
        assert process_sets.await_condition(lambda: len(spark.moments("bad")) > 1, limit_seconds=30)
    assert tended.failures[0] is error


@pytest.mark.parametrize(
    ("body", "seconds", "message"),
    [
        ("exec sleep 30", 0.2, "spark-submit of factory/flights: has not ended after 0.2 s; see"),
        (
            "echo a; echo 'Caused by: Exception: no' >&2; exit 1",
            30,
            "flights: Caused by: Exception:",
        ),
        ("exit 7", 30, "flights: ended with code 7"),
    ],
)
def test_a_submission_without_success_says_why_and_keeps_its_log(
    kubeconfig: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    body: str,
    seconds: float,
    message: str,
) -> None:
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    found = Distribution(Path(os.devnull), "17", tmp_path, "2.13")
    monkeypatch.setattr(spark_distribution, "find_distribution", lambda: found)
    monkeypatch.setattr(spark_submit, "SUBMIT_SECONDS_MAX", seconds)
    with pytest.raises(RunError, match=message):
        spark_submit.submit(
            Submission("factory", "flights", "local:///run.py"),
            kubeconfig=kubeconfig,
            folder=tmp_path / "submission",
        )
    assert (tmp_path / "submission" / "log").exists()
