"""A pipeline file: whatever it does on import, a pipeline comes of it or one sentence."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from rekindle.model.errors import InputError
from rekindle_cli import guard, pipeline_file
from rekindle_cli.guard import CallLimits
from rekindle_cli.pipeline_file import LoadedPipeline

TEXT = """
import pyarrow as pa
from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.testing import TableSource
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("key", pa.string())])
{head}
def pipeline():
    built = Pipeline("p")
    rows = built.source("rows", TableSource(SCHEMA.empty_table(), "at"))
    {body}
    rows.sink("out")
    return built
"""
HEAD_LINE = 6
# More than an import takes on a busy machine, and the least that a test can wait for.
AMPLE, SHORT = CallLimits(600.0), CallLimits(0.3, "--import-seconds")


def written(tmp_path: Path, head: str = "", body: str = "") -> Path:
    file = tmp_path / "machines.py"
    file.write_text(TEXT.format(head=head, body=body))
    return file


def load(
    tmp_path: Path, head: str = "", body: str = "", limits: CallLimits = AMPLE
) -> LoadedPipeline:
    return pipeline_file.load(str(written(tmp_path, head, body)), limits)


def refusal(tmp_path: Path, head: str = "", body: str = "", limits: CallLimits = AMPLE) -> str:
    """The message, in which the file is FILE."""
    with pytest.raises(InputError) as caught:
        load(tmp_path, head, body, limits)
    said = str(caught.value)
    assert "\n" not in said
    return said.replace(str(tmp_path / "machines.py"), "FILE")


def test_a_sound_file_gives_its_pipeline_without_findings(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert list(loaded.pipeline.steps) == ["rows", "out"]
    assert loaded.findings == ()


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("x = (", "FILE:6: cannot be imported: SyntaxError: "),
        ("x = y", "FILE:6: cannot be imported: NameError: name 'y' is not defined; mend the file"),
        ("import sys; sys.exit(3)", "FILE:6: cannot be imported: sys.exit(3) was called; take it"),
        ("raise SystemExit", "FILE:6: cannot be imported: sys.exit() was called"),
        ("import os; os._exit(3)", "FILE:6: calls os._exit(3); leave it out"),
        (
            "x = input('name? ')",
            "FILE:6: reads standard input, which a driver on a cluster has not",
        ),
        ("import sys; sys.stdin.read()", "FILE:6: reads standard input"),
        ("import sys; list(sys.stdin)", "FILE:6: reads standard input"),
        ("import not_there.at_all", "No module named 'not_there'; install it where this runs, and"),
        ("def f(): f()\nf()", "FILE:6: cannot be imported: RecursionError: "),
        ("raise KeyboardInterrupt", "FILE:6: cannot be imported: KeyboardInterrupt; mend the file"),
        ("raise GeneratorExit", "FILE:6: cannot be imported: GeneratorExit; mend the file"),
        ("assert False, 'a\\nb'", "FILE:6: cannot be imported: AssertionError: a b"),
        ("assert False, '\\x1b[2Ja'", "FILE:6: cannot be imported: AssertionError: \\x1b[2Ja"),
    ],
)
def test_what_a_file_does_wrong_on_import_is_one_sentence_with_its_line(
    tmp_path: Path, head: str, message: str
) -> None:
    assert message in refusal(tmp_path, head)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"# a\n# b\n# c \xff\xfe\n", "FILE:3: cannot be imported: SyntaxError: Non-UTF-8 code"),
        (b"# \xff\xfe\n", "FILE:1: cannot be imported: SyntaxError: Non-UTF-8 code"),
        (b"# coding: ascii\n# \xff\n", r"Non-ASCII code starting with '\xff'; mend the file"),
        (b"# coding: none\n", "cannot be imported: SyntaxError"),
        (b"# coding: latin-1\n# \xff\n", "has no function 'pipeline'"),
    ],
)
def test_a_file_that_is_no_text_is_refused_at_its_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "machines.py"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        pipeline_file.load(str(file), AMPLE)
    assert message in str(caught.value).replace(str(file), "FILE")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{}['x']", "FILE:10: pipeline() failed: KeyError: 'x'; mend the file"),
        ("return", "pipeline file FILE: pipeline() gave nothing; return a rekindle_spark"),
        ("return 3", "pipeline file FILE: pipeline() gave a int; return a rekindle_spark"),
        ("rows.sink('x', priority=99)", "FILE:10: step x: priority: is 99; give a number from 1"),
        ("exit(4)", "FILE:10: pipeline() failed: sys.exit(4) was called"),
    ],
)
def test_what_the_function_does_wrong_is_one_sentence_with_its_line(
    tmp_path: Path, body: str, message: str
) -> None:
    assert message in refusal(tmp_path, body=body)


def test_a_step_added_by_a_helper_is_refused_at_the_helpers_line(tmp_path: Path) -> None:
    head = "def add(rows):\n    rows.filter('odd', 3)"
    assert refusal(tmp_path, head, "add(rows)").startswith("FILE:7: step odd: predicate: is 3")


def test_a_module_beside_the_file_is_not_sent_to_executors(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("")
    said = refusal(tmp_path, "import helpers")
    assert (
        "only the pipeline file itself is sent to executors: move what it needs of helpers" in said
    )


def test_a_pipeline_that_no_function_returns_is_pointed_at(tmp_path: Path) -> None:
    file = tmp_path / "machines.py"
    file.write_text("from rekindle_spark.pipeline.steps import Pipeline\nmine = Pipeline('p')\n")
    with pytest.raises(
        InputError, match=r"has no function 'pipeline'; return mine from a function"
    ):
        pipeline_file.load(str(file), AMPLE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py", "is not there; name a Python file"),
        (".", "is a folder; name a Python file"),
        ("text.txt", "does not end in .py; name a Python file"),
        ("machines.py:other", "has no function 'other'; define it"),
        ("machines.py:pipelin", "has no function 'pipelin'; name one of: pipeline"),
        ("machines.py:later", "machines.py:7: later(): is async, and nothing awaits it; write"),
        ("machines.py:narrow", "machines.py:6: narrow() cannot be called without low, high; give"),
    ],
)
def test_what_is_no_pipeline_file_is_refused(tmp_path: Path, name: str, message: str) -> None:
    head = "def narrow(low, *more, high, step=1): return pipeline()\nasync def later(): pass"
    written(tmp_path, head)
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(InputError) as caught:
        pipeline_file.load(str(tmp_path / name), AMPLE)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "head",
    [
        "import time; time.sleep(1000)",
        "while True: pass",
        "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
        "import time\nwhile True:\n    try: time.sleep(1)\n    except Exception: pass",
        "import subprocess; subprocess.run(['sleep', '1000'])",
    ],
)
def test_a_file_that_blocks_is_given_up_with_its_line(tmp_path: Path, head: str) -> None:
    said = refusal(tmp_path, head, limits=SHORT)
    assert said.startswith(("FILE:6: has run for 0.3 s and is not done", "FILE:8: has run for"))
    assert said.endswith("; or give --import-seconds more")


@pytest.mark.parametrize("argument", ["", ":other"])
def test_a_file_without_a_name_is_not_taken_for_this_folder(argument: str) -> None:
    with pytest.raises(InputError, match=r"^pipeline file: has no name; name a Python file$"):
        pipeline_file.load(argument, AMPLE)


def test_threads_that_a_file_starts_are_a_finding_and_hold_up_no_end(tmp_path: Path) -> None:
    head = (
        "import threading\nDONE = threading.Event()\n"
        "THREAD = threading.Thread(target=DONE.wait, name='poller')\nTHREAD.start()"
    )
    loaded = load(tmp_path, head)
    (finding,) = loaded.findings
    assert finding.where.endswith("machines.py:9")
    assert finding.what == "starts the thread 'poller'"
    assert finding.remedy == "start none while the pipeline is made: executors do not have it"
    module = sys.modules[pipeline_file.MODULE]
    assert module.THREAD.daemon
    module.DONE.set()
    module.THREAD.join()


def test_threads_of_one_line_are_one_finding(tmp_path: Path) -> None:
    head = "import threading\nfor _ in range(3): threading.Thread(target=int).start()"
    (finding,) = load(tmp_path, head).findings
    assert finding.where.endswith("machines.py:7")


def test_a_thread_in_the_background_of_a_library_is_no_finding(tmp_path: Path) -> None:
    head = (
        "import multiprocessing.util, logging.handlers, queue\n"
        "LISTENER = logging.handlers.QueueListener(queue.Queue())\nLISTENER.start()"
    )
    assert load(tmp_path, head).findings == ()
    sys.modules[pipeline_file.MODULE].LISTENER.stop()


def test_the_current_folder_is_set_back(tmp_path: Path) -> None:
    before = Path.cwd()
    (finding,) = load(tmp_path, "import os; os.chdir('/')").findings
    assert finding.where.endswith("machines.py:6")
    assert finding.what == "changes the current folder to /; it was set back"
    assert Path.cwd() == before


def test_what_a_file_prints_goes_to_standard_error_up_to_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(tmp_path, "for n in range(100_000): print('line', n)")
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 201
    assert err.splitlines()[-1].endswith("printed 99,800 more lines, left out here")


@pytest.mark.parametrize(
    "head", ["input('name? ')", "print('name? ', end='')\nx", "print('name? ')\nx"]
)
def test_a_message_does_not_stand_behind_what_a_file_has_printed(
    tmp_path: Path, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal(tmp_path, head)
    assert capsys.readouterr().err == "name? \n"


def test_what_a_log_handler_of_the_file_writes_later_is_not_limited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "import sys\nSTREAM = sys.stderr\nfor n in range(300): print(n)"
    load(tmp_path, head)
    capsys.readouterr()
    print("after", file=sys.modules[pipeline_file.MODULE].STREAM)
    assert capsys.readouterr().err == "after\n"


def surroundings() -> tuple[object, ...]:
    """What a guard puts others in the place of."""
    functions = (os._exit, os.chdir, os.fchdir, threading.Thread.start, sys.getrecursionlimit())
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR2)]
    return (sys.stdin, sys.stdout, sys.stderr, *functions, *handlers)


@pytest.mark.parametrize("answer", ["raise", "pass", "raise OSError"])
def test_ctrl_c_while_a_file_is_imported_is_the_users_own_whatever_the_file_makes_of_it(
    tmp_path: Path, answer: str
) -> None:
    head = (
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n"
        f"    time.sleep(100)\nexcept BaseException:\n    {answer}\n"
    )
    before = surroundings()
    with pytest.raises(KeyboardInterrupt):
        load(tmp_path, head)
    assert surroundings() == before


def test_code_is_given_up_late_on_a_busy_machine_but_not_before_it_could_run() -> None:
    limits = CallLimits(10.0, ends_at=100.0)
    assert not limits.are_over(9.9, 99.9)
    assert limits.are_over(10.0, 50.0)
    assert limits.are_over(3.0, 100.0)
    assert not limits.are_over(2.9, 1000.0)


@pytest.mark.parametrize(
    ("limits", "is_busy"), [(CallLimits(600.0, ends_at=0.0), True), (SHORT, False)]
)
def test_whose_file_is_given_up_for_a_busy_machine_learns_of_it(
    tmp_path: Path, limits: CallLimits, is_busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "LEAST_SECONDS", 0.2)
    with pytest.raises(InputError) as refused:
        pipeline_file.load(str(written(tmp_path, "import time; time.sleep(100)")), limits)
    assert ("this machine is busy" in str(refused.value)) == is_busy


def test_everything_is_as_before_once_a_file_was_loaded(tmp_path: Path) -> None:
    before = surroundings()
    heads = ("", "x = y", "import os; os._exit(3)", "input()", "import os; os.chdir('/')")
    for head in (*heads, "import sys; sys.setrecursionlimit(200)"):
        with suppress(InputError):
            load(tmp_path, head)
        assert surroundings() == before


@pytest.mark.parametrize(
    "head",
    [
        "import time\nwhile True:\n    try: time.sleep(100)\n    except BaseException: pass",
        "import signal\nsignal.signal(signal.SIGUSR2, signal.SIG_IGN)\nwhile True: pass",
    ],
)
def test_code_that_cannot_be_interrupted_ends_the_process_with_one_sentence(
    tmp_path: Path, head: str
) -> None:
    file = written(tmp_path, head)
    command = [sys.executable, "-m", "rekindle_cli", "check", str(file), "--import-seconds", "0.3"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"{file}:8: has run for 0.3 s and is not done" in ended.stderr


@pytest.mark.parametrize("command", ["check", "test"])
def test_a_thread_of_the_file_does_not_keep_the_command_from_ending(
    tmp_path: Path, command: str
) -> None:
    head = "import threading, time\nthreading.Thread(target=time.sleep, args=(10_000,)).start()"
    ended = subprocess.run(
        [sys.executable, "-m", "rekindle_cli", command, str(written(tmp_path, head))],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert "machines.py:7: starts the thread" in ended.stderr
