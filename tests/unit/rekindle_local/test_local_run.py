"""`rekindle run --local` and its options, and masters that do not answer."""

import errno
import shutil
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.model import settings
from rekindle.model.errors import InputError, RunError
from rekindle_cli import command_line, local_request
from rekindle_cli.jsonl_tail import EventFile
from rekindle_cli.run_view import JsonView
from rekindle_local import local_run
from rekindle_spark.spark import spark_master

PIPELINE = "def pipeline():\n    raise ValueError('no')\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--local", "0"], "--local: is 0; give a number from 1 to 50"),
        (["--local", "4", "--master", "spark://a:1"], "--master: is given beside --local"),
        (["--local", "4", "--kill", "2"], "--kill: is given without --kill-after; say when"),
        (["--local", "2", "--kill-after", "soon"], "--kill-after: is 'soon'; write it as 90s"),
        (["--local", "2", "--kill-after", "9s", "--kill", "2"], "--kill: is 2 of 2 nodes; leave"),
        (["--local", "1", "--kill-after", "9s"], "--kill-after: would kill the only node of"),
        (["--local", "2", "--store", ""], "--store: is empty; name a folder"),
        (["--store", " "], "--store: is empty; name a folder"),
        (["--name", "a/b"], "--name: is given beside no --sidecar: without one no coordinator"),
        (["--kill-after", "9s"], "--kill-after: is given beside no --local"),
        (["--console"], "--console: is given beside no --local"),
        (["--local", "2"], "PIPELINE:2: pipeline() failed: ValueError: no; mend"),
    ],
)
def test_what_a_local_run_cannot_do_is_said_before_it_starts(
    arguments: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PIPELINE)
    assert command_line.run(command_line.application, ["run", str(file), *arguments]) == 2
    assert capfd.readouterr().err.startswith(message.replace("PIPELINE", str(file)))
    assert [*tmp_path.iterdir()] == [file]


def test_a_store_has_one_local_run_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("linked").symlink_to("store")
    with local_run.held("store"):
        for same in ("store", str(tmp_path / "store"), "linked"):
            with (
                pytest.raises(InputError, match=f"store {same}: another `rekindle run --local` r"),
                local_run.held(same),
            ):
                pass
        with local_run.held("other"), local_run.held("s3://a/b"), local_run.held("s3://a/b"):
            pass
    with local_run.held("store"):
        assert [*tmp_path.iterdir()] == [tmp_path / "linked"]


def test_a_store_is_held_also_once_its_folder_has_been_made(tmp_path: Path) -> None:
    store = tmp_path / "deep" / "store"
    with local_run.held(str(store)):
        store.mkdir(parents=True)
        with pytest.raises(InputError, match="another"), local_run.held(str(store)):
            pass


def test_another_folder_under_the_same_path_is_another_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def in_a_container(self: Path, **given: Any) -> Any:
        found = stat(self, **given)
        return SimpleNamespace(st_dev=found.st_dev + 1_000, st_ino=found.st_ino)

    store = str(tmp_path / "store")
    with local_run.held(store), monkeypatch.context() as elsewhere:
        elsewhere.setattr(Path, "stat", in_a_container)
        with local_run.held(store):
            pass


@pytest.mark.parametrize("method", ["bind", "__init__"])
def test_a_kernel_that_gives_no_names_keeps_nobody_off(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    named = type("Named", (socket.socket,), {method: refused})
    monkeypatch.setattr(socket, "socket", named)
    with local_run.held(str(tmp_path)), local_run.held(str(tmp_path)):
        pass


def test_a_second_local_run_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_run, "check_memory", lambda _: None)
    monkeypatch.setattr(local_run, "_perform", lambda *_: pytest.fail("a run was started"))
    store = str(tmp_path / "store")
    request: Any = SimpleNamespace(nodes=2, store=store)
    with local_run.held(store), pytest.raises(InputError, match="another `rekindle run --local`"):
        local_run.perform(request, JsonView())


def test_a_master_that_nobody_serves_is_said_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        spark_master.await_answer(f"spark://127.0.0.1:{port}")
    with pytest.raises(RunError, match=r"does not answer \(Connection refused\); start the master"):
        spark_master.await_answer(f"spark://127.0.0.1:{port}", limit_seconds=0.0)


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        spark_master.await_answer(f"spark://127.0.0.1:9,127.0.0.1:{port}", limit_seconds=0.0)


@pytest.mark.parametrize(
    ("pipeline", "name"),
    [("My Rides.py", "my-rides"), ("a/b_c.py:other", "b-c"), ("é.py", "pipeline")],
)
def test_an_application_has_the_name_of_its_file(pipeline: str, name: str) -> None:
    assert local_run.application_name(pipeline) == name


def test_more_nodes_than_memory_holds_are_refused_with_how_many_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_run, "free_mebibytes", lambda: 8_192.0)
    local_run.check_memory(7)
    with pytest.raises(InputError, match=r"--local 40: needs about 36\.7 GiB.*give --local 7"):
        local_run.check_memory(40)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (
            errno.EADDRINUSE,
            "end what holds ports, or widen /proc/sys/net/ipv4/ip_local_port_range",
        ),
        (errno.EMFILE, "raise the limit of open files with ulimit -n"),
        (errno.ENFILE, "raise the limit of open files with ulimit -n"),
    ],
    ids=["no-port", "no-file-of-the-process", "no-file-of-the-machine"],
)
def test_a_run_without_ports_for_its_nodes_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    local_run.check_ports(4)
    free = [socket.socket() for _ in range(20)]

    def hold_port(_: str) -> socket.socket:
        if not free:
            raise OSError(number, "no")
        return free.pop()

    monkeypatch.setattr(local_run, "hold_port", hold_port)
    with pytest.raises(InputError) as caught:
        local_run.check_ports(2)
    assert str(caught.value) == (
        f"127.0.0.1: 20 ports can be opened, about 48 are needed (no); {remedy}"
    )


def test_a_full_folder_for_temporary_files_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    room = SimpleNamespace(free=199 << 20)
    monkeypatch.setattr(shutil, "disk_usage", {str(tmp_path): room}.__getitem__)
    with pytest.raises(InputError) as caught:
        local_run.check_temporary()
    assert str(caught.value) == (
        f"temporary folder {tmp_path}: has 199 MiB of room, and a run needs about 200; make room "
        "there, or let TMPDIR name another folder"
    )
    room.free <<= 1
    local_run.check_temporary()


def test_a_machine_without_a_folder_for_temporary_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    with pytest.raises(InputError) as caught:
        local_run.check_temporary()
    assert str(caught.value) == (
        f"temporary folder: No usable temporary directory found in ['{tmp_path}/none']; make room "
        "in one of them, or let TMPDIR name a folder that may be written"
    )


@pytest.mark.parametrize(
    ("text", "limit"),
    [("version: 1", None), ("version: 1\nruntime: {host_memory_mib_max: 300}", 300.0)],
    ids=["none", "some"],
)
def test_hosts_of_a_local_run_have_a_memory_limit_only_where_the_user_sets_one(
    tmp_path: Path, text: str, limit: float | None
) -> None:
    given = tmp_path / "given.yaml"
    given.write_text(text)
    request = local_request.make(
        "mine.py", store=None, nodes=3, settings=given, conf={}, kill_after=None, kill=None
    )
    found = settings.load(local_run._settings_file(request, tmp_path)).runtime
    assert (found.host_memory_mib_max, found.nodes_expected) == (limit, 3)


class Driver:
    """A driver that has written some events, and ends once it is asked for a savepoint."""

    def __init__(self, savepoint: Path, *events: str) -> None:
        self.savepoint, self.events = savepoint, [{"kind": kind} for kind in events]

    @property
    def ended(self) -> bool:
        return self.savepoint.exists()

    def fresh_events(self) -> list[dict[str, str]]:
        fresh, self.events = self.events, []
        return fresh

    def check(self) -> None:
        pass


def interrupted(tmp_path: Path, *events: str) -> None:
    """Follow a run in which Ctrl-C is pressed once, after these events."""
    store = tmp_path / "store"
    request = local_request.make(
        "mine.py", store=str(store), nodes=1, settings=None, conf={}, kill_after=None, kill=None
    )
    driver: Any = Driver(store / "savepoint", *events)
    rest: Any = SimpleNamespace(events=EventFile(tmp_path / "none"), check=lambda: None)
    log = EventFile(tmp_path / "none")
    run = local_run._Run(request, JsonView(), rest, rest, rest, driver, log)
    run.interrupt()
    run.follow()


def test_ctrl_c_while_a_run_starts_ends_it_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path)


def test_ctrl_c_in_a_run_asks_for_a_savepoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store").mkdir()
    interrupted(tmp_path, "started")
    assert (tmp_path / "store" / "savepoint").exists()
    assert "ending at a savepoint" in capsys.readouterr().err
