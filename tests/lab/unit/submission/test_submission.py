"""What is done in place of both Spark operators: submissions, and one status after the other."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from rekindle.model.errors import InputError
from submission import apache_submission, kubeflow_submission, spark_submit, submission_steps
from submission.submission_steps import Action, SubmissionState

EXAMPLES = Path(__file__).parents[4] / "examples" / "kubernetes"
Body = dict[str, Any]
NOW = 1_800_000_000.0


def example(name: str, **spec: Any) -> Body:
    """An example as an API server has it, with other fields in its spec."""
    body: Body = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    body["metadata"]["uid"] = "u-1"
    body["spec"] |= spec
    return body


def pod(phase: str, name: str = "machines-driver", *, ready: bool = False, **status: Any) -> Body:
    conditions = [{"type": "Ready", "status": str(ready)}]
    labels = {"spark-app-selector": "spark-1"}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"phase": phase, "conditions": conditions, **status},
    }


class Course:
    """An application that its operator looks at again and again."""

    def __init__(self, kind: Any, application: Body) -> None:
        self.kind, self.application, self.now, self.looks = kind, application, NOW, 0

    def look(self, driver: Body | None = None, *executors: Body, after: float = 1.0) -> Action:
        self.now += after
        self.looks += 1
        scene = SubmissionState(self.application, driver, executors, self.now, f"id-{self.looks}")
        step = self.kind.decide(scene)
        if step.status is not None:
            self.application["status"] = deepcopy(step.status)
        action: Action = step.action
        return action

    @property
    def state(self) -> str:
        status = self.application["status"]
        found = status.get("applicationState", {}).get("state")
        return str(found or status["currentState"]["currentStateSummary"])


def test_kubeflow_submits_with_its_labels_and_makes_itself_the_owner() -> None:
    found = kubeflow_submission.submission(example("kubeflow"), "id-1")
    label = "spark.kubernetes.{}.label.{}".format
    for role in ("driver", "executor"):
        assert found.conf[label(role, "sparkoperator.k8s.io/app-name")] == "machines"
        assert found.conf[label(role, "sparkoperator.k8s.io/submission-id")] == "id-1"
    assert found.conf[label("driver", "rekindle.dev/inject")] == "true"
    assert found.conf["spark.kubernetes.driver.pod.name"] == "machines-driver"
    assert found.conf["spark.kubernetes.executor.limit.cores"] == "1"
    (owner,) = found.driver["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("u-1", True)
    (other,) = found.executor["metadata"]["ownerReferences"]
    assert not other["controller"]
    names = [volume["name"] for volume in found.executor["spec"]["volumes"]]
    assert names == ["temporary", "shared"]
    assert "podAntiAffinity" in found.executor["spec"]["affinity"]


def test_apache_submits_with_the_name_of_its_attempt() -> None:
    found = apache_submission.submission(example("apache"), "id-1")
    assert found.conf["spark.app.id"] == "machines-0"
    assert found.conf["spark.kubernetes.driver.pod.name"] == "machines-0-driver"
    label = "spark.kubernetes.executor.label.spark.operator/spark-app-name"
    assert found.conf[label] == "machines"
    (owner,) = found.driver["metadata"]["ownerReferences"]
    assert "controller" not in owner
    assert found.driver["metadata"]["labels"] == {"rekindle.dev/inject": "true"}


@pytest.mark.parametrize(
    ("kind", "name"), [(kubeflow_submission, "kubeflow"), (apache_submission, "apache")]
)
def test_a_field_that_nothing_is_done_about_is_refused(kind: Any, name: str) -> None:
    with pytest.raises(InputError, match="spec: has proxyUser, which this does not act on"):
        kind.submission(example(name, proxyUser="me"), "id-1")


def test_the_command_line_ends_with_the_program_and_its_arguments(tmp_path: Path) -> None:
    found = kubeflow_submission.submission(example("kubeflow"), "id-1")
    line = spark_submit.command(found, program="spark-submit", master="k8s://x", folder=tmp_path)
    assert line[:3] == ["spark-submit", "--master", "k8s://x"]
    assert line[-6:-4] == ["local:///opt/rekindle/run.py", "/pipeline/machines.py"]


def test_kubeflow_waits_for_the_end_of_the_old_pod_before_it_submits_again() -> None:
    course = Course(kubeflow_submission, example("kubeflow"))
    assert course.look() is Action.SUBMIT
    assert course.state == "SUBMITTED"
    course.look(pod("Pending"))
    assert course.state == "SUBMITTED"
    course.look(pod("Running"), pod("Running", "exec-1"))
    assert course.state == "RUNNING"
    assert course.application["status"]["executorState"] == {"exec-1": "RUNNING"}
    course.look(pod("Running"))
    assert course.application["status"]["executorState"] == {"exec-1": "FAILED"}
    course.look(pod("Failed"))
    assert course.state == "FAILING"
    assert course.look(pod("Failed")) is Action.NOTHING
    assert course.look(pod("Failed"), after=5) is Action.DELETE_DRIVER
    assert course.look(pod("Failed"), after=3600) is Action.NOTHING
    assert course.state == "PENDING_RERUN"
    assert course.look() is Action.SUBMIT
    assert course.application["status"]["executionAttempts"] == 2


def test_kubeflow_sees_nothing_of_a_lost_node_while_the_pod_is_there() -> None:
    course = Course(kubeflow_submission, example("kubeflow"))
    course.look()
    for _ in range(5):
        assert course.look(pod("Running"), after=600) is Action.NOTHING
    assert course.state == "RUNNING"
    course.look()
    assert course.state == "FAILING"


@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        ({"type": "Never"}, "FAILED"),
        ({"type": "OnFailure", "onFailureRetries": 1}, "PENDING_RERUN"),
        ({"type": "OnFailure"}, "FAILED"),
    ],
)
def test_kubeflow_starts_again_as_the_policy_says(policy: Body, ends: str) -> None:
    course = Course(kubeflow_submission, example("kubeflow", restartPolicy=policy))
    course.look()
    course.look(pod("Failed"))
    course.look(pod("Failed"))
    assert course.state == ends


def test_apache_counts_executors_that_are_ready() -> None:
    course = Course(apache_submission, example("apache"))
    assert course.look() is Action.SUBMIT
    course.look(pod("Running"))
    assert course.state == "DriverStarted"
    driver = pod("Running", ready=True)
    executors = [pod("Running", f"exec-{n}", ready=True) for n in range(3)]
    for count, state in (
        (0, "DriverReady"),
        (1, "InitializedBelowThresholdExecutors"),
        (3, "RunningHealthy"),
        (2, "RunningWithPartialCapacity"),
        (0, "RunningWithBelowThresholdExecutors"),
        (3, "RunningHealthy"),
    ):
        course.look(driver, *executors[:count])
        assert course.state == state
    history = course.application["status"]["stateTransitionHistory"]
    assert list(history) == [str(number) for number in range(len(history))]


def test_apache_gives_a_new_attempt_other_names() -> None:
    course = Course(apache_submission, example("apache"))
    course.look()
    course.look(pod("Failed"))
    assert course.state == "Failed"
    assert course.look(pod("Failed")) is Action.DELETE_DRIVER
    assert course.look(pod("Failed"), after=301) is Action.FORCE_DRIVER
    course.look()
    assert course.state == "ScheduledToRestart"
    assert course.look() is Action.NOTHING
    again = apache_submission.submission(course.application, "id")
    assert again.conf["spark.app.id"] == "machines-1"
    assert course.look(after=5) is Action.SUBMIT
    assert apache_submission.driver_name(course.application) == "machines-1-driver"


def test_apache_looks_for_a_driver_for_a_minute_before_it_counts_as_removed() -> None:
    course = Course(apache_submission, example("apache"))
    course.look()
    course.look(pod("Running"))
    course.look(None, after=30)
    assert course.state == "DriverStarted"
    course.look(None, after=31)
    assert course.state == "Failed"


def test_a_moment_is_read_back_as_it_was_written() -> None:
    assert submission_steps.seconds_between(submission_steps.moment(NOW), NOW + 7) == 7
