"""A control plane by hand: whose folder it is, which nodes are lost, and who is ended by `down`."""

import os
from pathlib import Path

import pytest

from rekindle.model.errors import InputError
from testbed import owned_folders, process_owners
from testbed.__main__ import _owned, lost_nodes, main


def test_word_is_left_of_the_nodes_that_shall_be_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--directory", str(tmp_path))
    with _owned(tmp_path):
        (tmp_path / "nodes").write_text("node-1\nnode-2")
        assert main(["lose", "node-1", "node-2", *place]) == 0
        assert main(["return", "node-1", *place]) == 0
        assert lost_nodes(tmp_path) == {"node-2"}
        assert main(["return", "node-1", *place]) == 2
        assert "node-1: is not lost; lost are: node-2" in capsys.readouterr().err
        for name in ("node-3", "../owner"):
            assert main(["lose", "node-1", name, *place]) == 2
            assert f"{name}: is no node here; `kubectl get nodes`" in capsys.readouterr().err
            assert main(["return", name, *place]) == 2
        assert lost_nodes(tmp_path) == {"node-2"}
    with _owned(tmp_path):
        assert not lost_nodes(tmp_path), "of the control plane before this one"


def test_nothing_is_taken_down_where_nothing_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["down", "--directory", str(tmp_path)]) == 2
    assert "no control plane runs there" in capsys.readouterr().err
    with _owned(tmp_path):  # and its file stays
        pass
    assert main(["down", "--directory", str(tmp_path)]) == 2
    assert "no control plane runs there" in capsys.readouterr().err


@pytest.mark.parametrize("told", ["", "-1", "0", "theirs"])
def test_what_names_no_process_is_sent_no_signal(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "kill", pytest.fail)
    with _owned(tmp_path):
        (tmp_path / "owner").write_text(told)
        assert main(["down", "--directory", str(tmp_path)]) == 2
    assert "owner: does not say which process runs the control plane" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["down", "lose"])
def test_a_word_of_the_owner_that_cannot_be_read_is_named(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owned_folders.make(tmp_path)
    (tmp_path / "owner").mkdir()  # as root reads every file
    nodes = ["node-1"] if command == "lose" else []
    assert main([command, *nodes, "--directory", str(tmp_path)]) == 2
    assert "owner: cannot be read and written (Is a directory); run this as who has" in (
        capsys.readouterr().err
    )


def test_a_second_control_plane_in_a_directory_is_refused_and_the_first_named(
    tmp_path: Path,
) -> None:
    refused = rf"process {os.getpid()} \(.*\) runs a control plane there; end it with"
    with _owned(tmp_path), pytest.raises(InputError, match=refused), _owned(tmp_path):
        pass


def test_a_directory_that_cannot_be_made_is_refused() -> None:
    with (
        pytest.raises(InputError, match=r"/proc/x: cannot be made \(No such file"),
        _owned(Path("/proc/x")),
    ):
        pass


def test_a_process_is_named_with_what_it_runs_and_one_that_is_anothers_is_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = process_owners.described(os.getpid())
    assert told.startswith(f"process {os.getpid()} (")
    assert Path("/proc/self/cmdline").read_text().partition("\0")[0] in told

    def refuse(error: type[OSError]) -> None:
        def kill(*_: int) -> None:
            raise error

        monkeypatch.setattr(os, "kill", kill)

    how = {"seconds_max": 1.0, "remedy": "look"}
    refuse(PermissionError)
    with pytest.raises(InputError, match="process 17: is another user's; run this as that user"):
        process_owners.end(17, lambda: False, **how)
    refuse(ProcessLookupError)
    with pytest.raises(InputError, match="process 17: has ended, and another has its place"):
        process_owners.end(17, lambda: False, **how)
    process_owners.end(17, lambda: True, **how)
