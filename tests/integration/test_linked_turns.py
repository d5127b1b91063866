"""What an executor does with tasks and outputs of linked jobs, by what else is there of these."""

import subprocess
from pathlib import Path

import java_probe

PROBE = """
package rekindle;

import java.util.Set;

public final class Probe {
  public static void main(String[] arguments) {
    System.out.println(Turn.of(1, null, false));
    System.out.println(Turn.of(1, Set.of(0, 1), false));
    System.out.println(Turn.of(1, Set.of(0), false));
    System.out.println(Turn.of(1, null, true));
    System.out.println(Turn.of(1, Set.of(0, 1), true));
  }
}
"""

TASKLESS = """
package rekindle;

import java.util.HashMap;
import java.util.Map;

public final class Probe {
  public static void main(String[] arguments) {
    Map<Integer, LinkedTasks.Job> jobs = new HashMap<>();
    for (int id = 1; id <= LinkedTasks.TASKLESS_MAX + 1; id++) jobs.put(id, new LinkedTasks.Job());
    jobs.get(1).left = 1;
    System.out.println(LinkedTasks.removeTaskless(jobs) + " " + jobs.size());
    for (int id = 101; id <= 102; id++) jobs.put(id, new LinkedTasks.Job());
    System.out.println(LinkedTasks.removeTaskless(jobs) + " " + jobs.containsKey(1));
  }
}
"""


def test_a_task_never_runs_whose_job_before_was_cancelled(tmp_path: Path) -> None:
    command = java_probe.command(tmp_path, PROBE)
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    assert said.split() == ["NOW", "NOW", "LATER", "NEVER", "NEVER"]


def test_outputs_go_of_jobs_whose_tasks_will_not_come(tmp_path: Path) -> None:
    command = java_probe.command(tmp_path, TASKLESS, spark=True)
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    assert said.splitlines() == ["[] 17", "[2, 3] true"]
