"""Queries of Structured Streaming inside one application, on real Spark: the page, and more."""

import re
import tempfile
from pathlib import Path

from spark_programs import run

from rekindle.protocol.store_paths import Place
from rekindle_local.local_control_plane import LocalControlPlane

PAGE = Path(__file__).parents[2] / "docs" / "protected-queries.md"
PROGRAM = Path(__file__).with_name("protecting.py")
BLOCK = re.compile(r"`([\w.]+)`[^`]*?:\n\n```(?:python|yaml)\n(.*?)```", re.DOTALL)
PLACE = Place("shop", "queries")


def write_page(folder: Path) -> Path:
    """The program of the page, with its settings."""
    for name, content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        (folder / name).write_text(content)
    assert {path.name for path in folder.iterdir()} == {"shop.py", "settings.yaml"}
    return folder / "shop.py"


def check_story(said: list[str]) -> None:
    """The less important queries have waited, all are back, and each row is there once."""
    assert "running: clicks orders stock" in said
    assert "after the loss: orders" in said, "the most important one goes on, and alone"
    assert "back: clicks orders stock" in said
    for name in ("orders", "stock", "clicks"):
        assert f"{name} has each row once" in said


def test_the_program_of_the_page_loses_nodes_and_no_row(tmp_path: Path) -> None:
    check_story(run(write_page(tmp_path), folder=tmp_path).splitlines())


def test_the_same_program_follows_a_coordinator(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    program = write_page(tmp_path / "shop")
    with tempfile.TemporaryDirectory() as short:  # the path of a Unix socket has 107 bytes at most
        socket = Path(short) / "s"
        text = program.read_text()
        led = text.replace("alone=True,", f"sidecar={str(socket)!r}, name='{PLACE}',")
        assert led != text
        program.write_text(led)
        with LocalControlPlane(
            directory=tmp_path / "control",
            cluster=tmp_path / "provisioning",
            socket=socket,
            place=PLACE,
        ) as control:
            check_story(run(program, folder=program.parent).splitlines())
            lines = control.events.fresh()
    kinds = [line["kind"] for line in lines if line.get("application") == str(PLACE)]
    assert "incident-opened" in kinds
    assert kinds.count("plan") >= 2, "those that go on, and those that come back"


def test_queries_are_refused_stopped_started_and_left_alone(tmp_path: Path) -> None:
    assert "all is as it should be" in run(PROGRAM, str(tmp_path), folder=tmp_path)
