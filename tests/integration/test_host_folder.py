"""The folder of a host's socket, as the JVM makes it: its own, private, and with a short path."""

import subprocess
from pathlib import Path

import java_probe
import pytest

PROBE = """
package rekindle;

import java.io.IOException;
import java.util.List;

public final class Probe {
  public static void main(String[] places) throws IOException {
    for (int i = 0; i < 2; i++) {
      System.out.println(HostFolder.make(places[0], List.of(places).subList(1, places.length)));
    }
  }
}
"""


@pytest.fixture(name="probe", scope="module")
def _probe(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command line, to be continued with folders."""
    return java_probe.command(tmp_path_factory.mktemp("probe"), PROBE)


def made(probe: list[str], *places: Path) -> list[Path]:
    command = [*probe, *map(str, places)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return [Path(line) for line in ended.stdout.splitlines()]


def test_executors_of_one_temporary_folder_have_private_folders_of_their_own(
    probe: list[str], tmp_path: Path
) -> None:
    first, second = made(probe, tmp_path)
    assert first != second
    for folder in (first, second):
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700


def test_another_place_is_taken_where_the_path_is_too_long_or_not_there(
    probe: list[str], tmp_path: Path
) -> None:
    long = tmp_path.joinpath(*["deep"] * 25)
    long.mkdir(parents=True)
    for place in (long, tmp_path / "absent"):
        assert {folder.parent for folder in made(probe, place, tmp_path)} == {tmp_path}


def test_where_no_place_will_do_each_is_named(probe: list[str], tmp_path: Path) -> None:
    absent = [tmp_path / "absent", tmp_path / "gone"]
    command = [*probe, *map(str, absent)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 1
    assert "no folder for the host's socket" in ended.stderr
    assert "give the executor a java.io.tmpdir with a short path" in ended.stderr
    assert all(str(path) in ended.stderr for path in absent)
