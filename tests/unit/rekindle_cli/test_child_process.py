"""Users' code that ends its process, or holds it up: one sentence, with file, line and step."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rekindle.model.errors import InputError
from rekindle_cli import child_process, command_line

PIPELINE = """
import ctypes, os, signal, sys, threading
import pyarrow as pa
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.testing import TableSource
{head}
ROWS = pa.table({{"at": pa.array([1], pa.timestamp("us")), "key": ["a"]}})
def kept(table):
    {body}
    return [True] * table.num_rows
def pipeline():
    built = Pipeline("p")
    rows = built.source("rows", TableSource(ROWS, "at"))
    rows.map("same", lambda table: (kept(table), table)[1], schema=rows.schema).sink("out")
    return built
"""
SEGFAULT = "ctypes.string_at(0)"
IN_STEP = "; mend the step's function: it would end executors' processes too"
IN_FILE = "; mend the file, or leave out the library that does this"


def written(tmp_path: Path, head: str = "", body: str = "pass") -> str:
    file = tmp_path / "wrong.py"
    file.write_text(PIPELINE.format(head=head, body=body))
    return str(file)


def said_of(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command that must end with 2."""
    assert command_line.run(command_line.application, arguments) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1, said
    return said.removeprefix("error: ")


def test_on_a_terminal_a_command_says_at_once_what_it_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, head="raise ValueError('no')")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert command_line.run(command_line.application, ["check", file]) == 2
    first, error = capfd.readouterr().err.splitlines()
    assert first == f"checking the pipeline file {file}"
    assert error.startswith("error: ")


@pytest.mark.parametrize("command", ["check", "test"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (SEGFAULT, "{file}:9: step same: ended its process with SIGSEGV" + IN_STEP),
        ("os.abort()", "{file}:9: step same: ended its process with SIGABRT" + IN_STEP),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "pipeline file {file}: step same: ended its process with SIGKILL" + IN_STEP,
        ),
        (
            "signal.signal(signal.SIGALRM, signal.SIG_DFL); signal.raise_signal(signal.SIGALRM)",
            "pipeline file {file}: step same: ended its process with SIGALRM" + IN_STEP,
        ),
        (
            "ctypes.CDLL(None)._exit(0)",
            "pipeline file {file}: step same: ended its process with exit code 0" + IN_STEP,
        ),
        (
            "os.execv(sys.executable, [sys.executable, '-c', ''])",
            "pipeline file {file}: step same: ended its process with exit code 0" + IN_STEP,
        ),
        ("raise KeyboardInterrupt", "step same: raised KeyboardInterrupt, at epoch 1 of rows/0, "),
        ("sys.exit(3)", "step same: raised SystemExit: 3, at epoch 1 of rows/0, "),
    ],
    ids=["segfault", "abort", "kill", "alarm", "exit", "exec", "interrupt", "sys.exit"],
)
def test_a_function_that_ends_its_process_is_one_sentence_with_its_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, body: str, message: str
) -> None:
    file = written(tmp_path, body=body)
    said = said_of(capfd, command, file)
    assert said.startswith(message.format(file=file))
    assert "Fatal" not in said


@pytest.mark.parametrize("command", ["check", "test", "run"])
@pytest.mark.parametrize("head", [SEGFAULT, f"def broken(): {SEGFAULT}\nbroken()"])
def test_an_import_that_ends_its_process_is_one_sentence_with_its_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, head: str
) -> None:
    file = written(tmp_path, head=head)
    options = {"run": ["--store", str(tmp_path / "store"), "--master", "spark://127.0.0.1:9"]}
    said = said_of(capfd, command, file, *options.get(command, ()))
    assert said.startswith(f"{file}:6: ended its process with SIGSEGV" + IN_FILE)
    assert not (tmp_path / "store").exists()


def test_a_run_is_refused_for_a_function_that_ends_its_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, body=SEGFAULT)
    place = ("--store", str(tmp_path / "store"), "--master", "spark://127.0.0.1:9")
    assert said_of(capfd, "run", file, *place).startswith(f"{file}:9: step same: ended its process")


def test_scripts_read_of_a_death_as_of_any_other_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, body=SEGFAULT)
    assert command_line.run(command_line.application, ["check", file, "--json"]) == 2
    (finding,) = json.loads(capfd.readouterr().out)["findings"]
    assert finding["where"] == f"{file}:9: step same"
    assert finding["what"] == "ended its process with SIGSEGV"


def test_a_file_that_forks_is_checked_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, head="CHILD = os.fork()\nCHILD and os.waitpid(CHILD, 0)")
    assert command_line.run(command_line.application, ["check", file]) == 0
    assert capfd.readouterr().out.count("nothing is wrong") == 1


@pytest.mark.parametrize("end", ["pass", "os._exit(3)"])
def test_what_a_file_has_forked_ends_with_the_check(tmp_path: Path, end: str) -> None:
    noted = tmp_path / "child"
    head = f"""
import subprocess
sleeps = "import time; time.sleep(600)"
starts = "import subprocess as s, sys; print(s.Popen(sys.argv[1:], stdout=s.DEVNULL).pid)"
child = subprocess.Popen([sys.executable, "-c", sleeps], start_new_session=True)
daemon = subprocess.run(
    [sys.executable, "-c", starts, sys.executable, "-c", sleeps],
    start_new_session=True,
    stdout=subprocess.PIPE,
)
open({str(noted)!r}, "w").write(f"{{child.pid}} {{daemon.stdout.decode()}}")
{end}
"""
    code = command_line.run(command_line.application, ("check", written(tmp_path, head=head)))
    assert code == (0 if end == "pass" else 2)
    pids = noted.read_text().split()
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_children_from_before_a_check_live_on(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert command_line.run(command_line.application, ("check", written(tmp_path))) == 0
        assert other.poll() is None
        other.communicate(b"\n")
    assert other.returncode == 0


def test_a_name_beyond_ascii_is_shown_as_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "zürich 東京"
    folder.mkdir()
    file = written(folder, body=SEGFAULT)
    assert said_of(capfd, "check", file).startswith(f"{file}:9: step same")


def test_a_call_that_never_lets_the_interpreter_go_is_ended_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "held.py"
    file.write_text("import re\ndef hold():\n    re.match(r'(a+)+$', 'a' * 60 + 'b')\n")
    names: dict[str, object] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)

    def work() -> None:
        noted = child_process.noting(0.2)
        noted.begin(0, 0, "held")
        noted.calling("held")
        names["hold"]()  # type: ignore[operator]

    with pytest.raises(InputError) as caught:
        child_process.run("pipeline file held.py", work)
    assert str(caught.value).startswith(
        f"{file}:3: step held: has run for 0.2 s, and cannot be interrupted; take out"
    )


def test_what_a_child_prints_and_its_exit_code_are_the_commands(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def refused() -> None:
        print("before")
        raise InputError(where="here", what="is wrong", remedy="mend it")

    assert child_process.run("x", refused) == 2
    assert capfd.readouterr() == ("before\n", "here: is wrong; mend it\n")
    assert child_process.run("x", lambda: 3) == 3
    assert child_process.run("x", lambda: None) == 0


def test_a_bug_of_ours_in_a_child_shows_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    assert child_process.run("x", lambda: 1 // 0) == 1
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_ctrl_c_ends_the_child_too() -> None:
    reading, writing = os.pipe()

    def work() -> None:
        os.write(writing, b"%d" % os.getpid())
        signal.pause()

    def interrupt() -> None:
        children.append(int(os.read(reading, 100)))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    children: list[int] = []
    # a shell that runs the tests in its background has it ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            child_process.run("x", work)
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(ProcessLookupError):
        os.kill(children[0], 0)


@pytest.mark.parametrize("command", ["check", "test", "run"])
def test_a_command_forks_before_it_has_loaded_what_starts_threads(
    tmp_path: Path, command: str
) -> None:
    options = ["--store", str(tmp_path / "store"), "--master", "spark://127.0.0.1:9"]
    line = [command, written(tmp_path), *(options if command == "run" else [])]
    program = (
        "import os, sys\nfrom rekindle_cli import child_process, command_line as cli\n"
        "def look(*_):\n    print(len(os.listdir('/proc/self/task')), 'pyarrow' in sys.modules)\n"
        "    return 2\n"
        f"child_process.run = look\nraise SystemExit(cli.run(cli.application, {line!r}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == "1 False\n"
