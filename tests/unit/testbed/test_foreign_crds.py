"""Definitions of others: downloaded once for all clones, and again where they are damaged."""

from pathlib import Path

import pytest

from rekindle.model.errors import RunError
from testbed import foreign_crds

# What a test's own `go` does: it puts the files of the module into the folder of modules.
GO = """#!/bin/sh
echo "$@" >> "$CALLS"
[ -n "$BROKEN" ] && { echo 'module lookup disabled' >&2; exit 1; }
root=$GOMODCACHE/$3/pkg/apis/crds
mkdir -p "$root"
for kind in nodeclaims nodepools; do echo "kind: $kind" > "$root/karpenter.sh_$kind.yaml"; done
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and a `go` that downloads; the file with its calls."""
    program, calls = tmp_path / "tools" / "go", tmp_path / "calls"
    program.parent.mkdir()
    program.write_text(GO)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    monkeypatch.setenv("REKINDLE_TESTBED", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(calls))
    calls.touch()
    return calls


def test_definitions_are_downloaded_once_and_kept(go: Path) -> None:
    files = foreign_crds.find("karpenter")
    assert [file.read_text() for file in files] == ["kind: nodeclaims\n", "kind: nodepools\n"]
    assert foreign_crds.find("karpenter") == files
    assert not foreign_crds.lacking("karpenter")
    assert go.read_text() == "mod download sigs.k8s.io/karpenter@v1.14.0\n"


def test_a_damaged_definition_is_downloaded_again(go: Path) -> None:
    files = foreign_crds.find("karpenter")
    files[0].write_text("kind:")
    foreign_crds.find("karpenter")
    assert files[0].read_text() == "kind: nodeclaims\n"
    assert len(go.read_text().splitlines()) == 2


@pytest.mark.usefixtures("go")
def test_a_download_that_fails_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN", "yes")
    with pytest.raises(RunError, match=r"karpenter@.*module lookup disabled; see whether Go mod"):
        foreign_crds.find("karpenter")
    left = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert left == ["lock"]
