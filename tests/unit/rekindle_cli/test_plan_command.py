"""The command `rekindle plan`, run as its users run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RECOVERY = Path(__file__).parents[3] / "recovery"
PROBLEM = {
    "version": 1,
    "partitions": {"[red]a/0": {"cpu_percent": 60}, "b/0": {"cpu_percent": 50}},
    "queries": {
        "late flights/0": {"priority": 7, "partitions": ["[red]a/0"]},
        "[bold]/0": {"priority": 2, "partitions": ["[red]a/0", "b/0"]},
    },
    "nodes": {"127.0.0.2": {"free_cpu_percent": 80}, "127.0.0.3": {"free_cpu_percent": 20}},
}


def plan(*arguments: str) -> subprocess.CompletedProcess[str]:
    start = "import sys; from rekindle_cli.command_line import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", start, "plan", *arguments],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(RECOVERY), "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        check=False,
    )


@pytest.fixture
def problem_file(tmp_path: Path) -> Path:
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(PROBLEM))
    return file


def test_a_plan_is_shown_as_a_sentence_and_tables(problem_file: Path) -> None:
    done = plan(str(problem_file))
    assert done.returncode == 0, done.stderr
    assert "Bring back 1 of 2 lost queries with 1 partition, 60 % CPU on 1 node" in done.stdout
    shown = {tuple(line.replace("│", " ").split()) for line in done.stdout.splitlines()}
    assert ("late", "flights/0", "7", "bring", "back") in shown
    assert ("[bold]/0", "2", "no-capacity") in shown
    assert ("127.0.0.2", "[red]a/0", "60", "80") in shown


def test_ids_are_whole_where_no_terminal_is_too_narrow_for_them(tmp_path: Path) -> None:
    partitions = [f"enrich-weather-with-{'very-' * 12}near-stations/{n}" for n in range(4)]
    query = "late-flights-by-airport-and-carrier-and-day-of-the-week-and-hour-of-the-day/0"
    node = "ip-10-0-10-123.eu-central-1.compute.internal.of-a-cluster-with-a-long-name"
    problem = {
        "version": 1,
        "partitions": {name: {"cpu_percent": 1} for name in partitions},
        "queries": {query: {"priority": 1, "partitions": partitions}},
        "nodes": {node: {"free_cpu_percent": 4}},
    }
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(problem))
    done = plan(str(file))
    assert done.returncode == 0, done.stderr
    for name in (*partitions, query, node):
        assert name in done.stdout
    assert "…" not in done.stdout


@pytest.mark.parametrize("solver", ["auto", "best-density", "dp", "exact", "operator-centric"])
def test_json_is_the_answer_and_nothing_else(problem_file: Path, solver: str) -> None:
    done = plan(str(problem_file), "--json", "--solver", solver, "--seed", "4")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["version"] == 1
    assert answer["seed"] == 4
    assert answer["solver"] == ("exact" if solver == "auto" else solver)
    assert answer["queries"] == ["late flights/0"]
    assert answer["placement"] == {"127.0.0.2": ["[red]a/0"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--solver", "magic"), "--solver: 'magic' is not known; use one of auto"),
        (("--budget-seconds", "-1"), "--budget-seconds: is -1.0; give a number of seconds from 0"),
        (("--budget-seconds", "nan"), "--budget-seconds: is nan"),
        (("--seed", "-1"), "--seed: is -1"),
        (("--seed", str(2**63)), "--seed: is beyond all limits; give a whole number from 0 to"),
    ],
)
def test_wrong_options_end_with_code_2_and_a_remedy(
    problem_file: Path, arguments: tuple[str, str], message: str
) -> None:
    done = plan(str(problem_file), *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert "Traceback" not in done.stderr


def test_the_largest_seed_is_one_that_an_answer_may_have(
    problem_file: Path, tmp_path: Path
) -> None:
    last = tmp_path / "answer.json"
    last.write_text(plan(str(problem_file), "--json", "--seed", str(2**63 - 1)).stdout)
    done = plan(str(problem_file), "--start", str(last))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "problem.json: is empty"),
        (b"{}", "problem.json: version: is missing; add it"),
        (b"\xff", "problem.json: is not JSON"),
    ],
)
def test_a_bad_file_ends_with_code_2_and_names_the_field(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "problem.json"
    file.write_bytes(content)
    done = plan(str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{tmp_path}/{message}")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", [".", "none.json"])
def test_a_file_that_cannot_be_read_ends_with_code_2(tmp_path: Path, name: str) -> None:
    done = plan(str(tmp_path / name))
    assert done.returncode == 2
    assert "cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plan_goes_on_from_the_last_one(problem_file: Path, tmp_path: Path) -> None:
    last = tmp_path / "answer.json"
    last.write_text(plan(str(problem_file), "--json").stdout)
    done = plan(str(problem_file), "--start", str(last), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["queries"] == json.loads(last.read_text())["queries"]


def test_what_the_last_plan_has_placed_on_full_nodes_is_placed_again(tmp_path: Path) -> None:
    costs = {
        "n0": (37, 29, 13, 21),
        "n1": (29, 17, 17, 31, 6),
        "n2": (29, 17, 13, 31, 10),  # all full to the brim: nobody finds that within a second
    }
    held = {node: [f"{node}-{n}/0" for n in range(len(of_one))] for node, of_one in costs.items()}
    partitions = {
        name: {"cpu_percent": cost}
        for node, names in held.items()
        for name, cost in zip(names, costs[node], strict=True)
    }
    problem = {
        "version": 1,
        "partitions": partitions,
        "queries": {"all/0": {"priority": 1, "partitions": list(partitions)}},
        "nodes": {node: {"free_cpu_percent": 100} for node in costs},
    }
    file, last = tmp_path / "problem.json", tmp_path / "answer.json"
    file.write_text(json.dumps(problem))
    answer = json.loads(plan(str(file), "--json").stdout)
    record = {"queries": ["all/0"], "partitions": list(partitions), "placement": held}
    last.write_text(json.dumps({**answer, **record, "priority_sum": 1.0, "upper_bound": 1.0}))
    done = plan(str(file), "--start", str(last), "--json")
    assert json.loads(done.stdout)["queries"] == ["all/0"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "answer.json: is not JSON ("),
        ("{}", "answer.json"),
        ("[]", "answer.json"),
        (json.dumps(PROBLEM), "answer.json: is a problem, not an answer; give what"),
        (
            None,
            "answer.json: cannot be read (No such file or directory); name a readable file with "
            "what `rekindle plan --json` has printed",
        ),
    ],
)
def test_a_start_that_is_no_answer_is_refused(
    problem_file: Path, tmp_path: Path, content: str | None, message: str
) -> None:
    last = tmp_path / "answer.json"
    if content is not None:
        last.write_text(content)
    done = plan(str(problem_file), "--start", str(last))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
