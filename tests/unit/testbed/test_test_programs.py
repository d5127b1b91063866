"""Where the programs of the testbed come from: named, kept or built, and never a damaged one."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rekindle.model.errors import InputError, RunError
from rekindle_local import cached_files
from testbed import foreign_crds, go_modules, test_programs
from testbed.__main__ import main
from testbed.test_programs import API_SERVER, CONTROL_PLANE, CONTROLLER_MANAGER, ETCD, SCHEDULER

UPSTREAM = """module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	k8s.io/api v0.0.0
	k8s.io/utils v0.0.0-20250604170112-4c0f3b243397
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubectl => ./staging/src/k8s.io/kubectl
)
"""
# What a test's own `go` does: it says where a go.mod lies, or makes the programs of packages.
GO = """#!/bin/sh
echo "$@" >> "$TESTBED_CALLS"
case "$1 $2" in
  "env "*) echo linux; echo amd64; exit;;
  "list -m") echo "$TESTBED_UPSTREAM"; exit;;
  "list -deps") echo 'go: downloading example.com/a v1' >&2; echo a; echo b; exit;;
esac
[ -n "$TESTBED_BROKEN" ] && { echo 'package is not in std' >&2; exit 1; }
echo a >&2
while [ "$1" != -o ]; do shift; done
folder=$2; shift 2
for package; do
  program=${package%/v3}; program=$folder${program##*/}
  printf '%s\\n' '#!/bin/sh' "${TESTBED_PROGRAM:-exit 0}" > "$program"; chmod +x "$program"
done
"""
KUBERNETES = go_modules.kubernetes(test_programs.KUBERNETES_VERSION)


def make_programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\necho {name}\n")
        (folder / name).chmod(0o755)
    return folder


def keep_programs(cache: Path, *names: str) -> Path:
    """The folder of Kubernetes in the cache, with programs that were put there."""
    folder = cache / "programs" / KUBERNETES.folder
    made = make_programs(folder / "building-these", *names)
    for name in names:
        cached_files.put(made / name, folder / name)
    made.rmdir()
    return folder


def left_in(folder: Path) -> set[str]:
    """Names in a folder, but for digests."""
    return {path.name for path in folder.iterdir() if path.suffix != ".sha256"}


def builds(calls: Path) -> list[str]:
    """The packages of each `go build`."""
    lines = (line.split() for line in calls.read_text().splitlines() if line.startswith("build"))
    return [" ".join(words[words.index("-o") + 2 :]) for words in lines]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no other folder of programs, and no Go."""
    cache = tmp_path / "cache"
    for name in ("KUBEBUILDER_ASSETS", "REKINDLE_KUBERNETES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REKINDLE_TESTBED", str(cache))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return cache


@pytest.fixture
def go(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `go` that builds empty programs; the file with its calls."""
    folder, upstream, calls = (cache.parent / name for name in ("tools", "upstream", "calls"))
    folder.mkdir()
    (folder / "go").write_text(GO)
    (folder / "go").chmod(0o755)
    upstream.write_text(UPSTREAM)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    monkeypatch.setenv("TESTBED_UPSTREAM", str(upstream))
    monkeypatch.setenv("TESTBED_CALLS", str(calls))
    return calls


def test_programs_come_from_the_named_folder_then_from_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = make_programs(tmp_path / "assets", ETCD, API_SERVER)
    kept = keep_programs(cache, *CONTROL_PLANE)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert test_programs.find() == {
        ETCD: assets / ETCD,
        API_SERVER: assets / API_SERVER,
        CONTROLLER_MANAGER: kept / CONTROLLER_MANAGER,
        SCHEDULER: kept / SCHEDULER,
    }


def test_a_named_folder_without_an_api_server_is_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(make_programs(tmp_path / "assets", ETCD)))
    with pytest.raises(InputError, match=r"KUBEBUILDER_ASSETS=.*holds no program kube-apiserver"):
        test_programs.find()
    assert not cache.exists()


@pytest.mark.usefixtures("cache")
def test_without_programs_and_without_go_the_error_says_what_to_install() -> None:
    with pytest.raises(InputError, match=r"Go is not installed.*; install Go .*KUBEBUILDER_ASSETS"):
        test_programs.find()


def test_without_go_it_is_said_before_anything_is_built_what_cannot_be(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    keep_programs(cache, *CONTROL_PLANE)
    assert not test_programs.lacking()
    (fault,) = test_programs.lacking((*CONTROL_PLANE, "kubelet", "helm"))
    assert "holds no kubelet, helm, and Go is not installed" in fault.what
    monkeypatch.setenv("REKINDLE_KUBERNETES", "latest")
    (fault,) = test_programs.lacking()
    assert fault.where == "REKINDLE_KUBERNETES"


def test_neither_a_cache_that_cannot_be_made_nor_missing_go_hides_the_other(cache: Path) -> None:
    cache.touch()
    for faults in (test_programs.lacking(), foreign_crds.lacking("spark-operator")):
        assert [("no folder" in fault.what, "Go is not" in fault.what) for fault in faults] == [
            (True, False),
            (False, True),
        ]


@pytest.mark.parametrize("version", ["1.34", "v1.34.4", "latest", "2.0.0", "1.34.4; rm"])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(InputError, match=r"REKINDLE_KUBERNETES: is .*; give a whole version"):
        test_programs.kubernetes_version({"REKINDLE_KUBERNETES": version})


def test_the_cache_lies_where_the_user_wants_it() -> None:
    assert test_programs.cache_folder({"REKINDLE_TESTBED": "/a"}) == Path("/a")
    assert test_programs.cache_folder({"XDG_CACHE_HOME": "/b"}) == Path("/b/rekindle/testbed")
    assert test_programs.cache_folder({}) == Path.home() / ".cache" / "rekindle" / "testbed"


def test_without_a_home_the_cache_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobodys() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobodys)
    with pytest.raises(InputError, match=r"HOME: is not set.* let XDG_CACHE_HOME name a folder"):
        test_programs.cache_folder({})


def test_a_cache_that_cannot_be_made_is_refused_before_anything_is_built(
    cache: Path, go: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.touch()
    assert main(["build", ETCD]) == 2
    assert f"cannot be made: {cache} is no folder; let REKINDLE_TESTBED" in capsys.readouterr().err
    assert not go.exists(), "it was not called"
    assert len(test_programs.lacking()) == 1


def test_what_is_missing_is_built_once_and_kept(cache: Path, go: Path) -> None:
    folder = keep_programs(cache, ETCD)
    said: list[str] = []
    found = test_programs.find([ETCD, SCHEDULER, "helm"], progress=said.append)
    assert all(os.access(path, os.X_OK) for path in found.values())
    packages = go_modules.helm().packages["helm"]
    assert sorted(builds(go)) == [packages, "k8s.io/kubernetes/cmd/kube-scheduler"]
    assert any("2 packages to compile at most" in line for line in said)
    calls = go.read_text()
    assert test_programs.find([ETCD, SCHEDULER, "helm"]) == found
    assert go.read_text() == calls
    assert left_in(folder) == {ETCD, SCHEDULER, "lock"}


def test_several_programs_of_a_module_are_built_at_once(cache: Path, go: Path) -> None:
    found = test_programs.find([ETCD, SCHEDULER])
    assert builds(go) == ["go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-scheduler"]
    assert left_in(cache / "programs" / KUBERNETES.folder) == {ETCD, SCHEDULER, "lock"}
    assert all(path.name == name for name, path in found.items())


@pytest.mark.parametrize("damage", ["", "#!/bin/sh\nexit 1\n"])
def test_a_program_that_was_damaged_is_built_again_with_one_line_about_it(
    cache: Path, go: Path, damage: str
) -> None:
    folder = keep_programs(cache, ETCD, SCHEDULER)
    (folder / ETCD).write_text(damage)
    said: list[str] = []
    test_programs.find([ETCD, SCHEDULER], progress=said.append)
    assert [line for line in said if "damaged" in line] == [
        f"kubernetes: {folder / ETCD} is damaged and is built again"
    ]
    assert builds(go) == ["go.etcd.io/etcd/server/v3"]
    assert cached_files.is_intact(folder / ETCD)


def may_not_be_executed(program: Path) -> None:
    program.chmod(0o644)


def is_a_folder(program: Path) -> None:
    program.unlink()
    (program / "below").mkdir(parents=True)


def leads_nowhere(program: Path) -> None:
    program.unlink()
    program.symlink_to("nowhere")


@pytest.mark.parametrize("damage", [may_not_be_executed, is_a_folder, leads_nowhere])
def test_whatever_has_come_of_a_program_it_is_built_again(
    cache: Path, go: Path, damage: Callable[[Path], None]
) -> None:
    folder = keep_programs(cache, ETCD)
    damage(folder / ETCD)
    said: list[str] = []
    assert os.access(test_programs.find([ETCD], progress=said.append)[ETCD], os.X_OK)
    assert f"kubernetes: {folder / ETCD} is damaged and is built again" in said
    assert builds(go) == ["go.etcd.io/etcd/server/v3"]


def test_without_go_a_damaged_program_is_named_as_such(cache: Path) -> None:
    folder = keep_programs(cache, *CONTROL_PLANE)
    (folder / f"{ETCD}.sha256").unlink()
    with pytest.raises(InputError, match=r"holds no etcd \(it is damaged\), and Go is not"):
        test_programs.find()


def test_a_program_that_does_not_run_on_this_machine_is_not_kept(
    cache: Path, go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTBED_PROGRAM", "exit 1")
    with pytest.raises(RunError, match=r"etcd: ended with code 1; see whether programs"):
        test_programs.find([ETCD])
    assert left_in(cache / "programs" / KUBERNETES.folder) == {"lock", "failed"}
    assert len(builds(go)) == 1


def test_two_builders_at_once_do_no_harm_and_the_second_builds_nothing(go: Path) -> None:
    threads = [threading.Thread(target=test_programs.find, args=[[SCHEDULER]]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds(go)) == 1


@pytest.mark.usefixtures("go")
def test_what_an_ended_builder_has_left_is_removed(cache: Path) -> None:
    folder = cache / "programs" / KUBERNETES.folder
    make_programs(folder / "building-left", SCHEDULER)
    test_programs.find([SCHEDULER])
    assert left_in(folder) == {SCHEDULER, "lock"}


def test_a_build_that_fails_says_why_and_leaves_no_program(
    cache: Path, go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTBED_BROKEN", "yes")
    with pytest.raises(RunError, match=r"go build k8s\.io/.*: package is not in std; see whether"):
        test_programs.find([SCHEDULER])
    assert left_in(cache / "programs" / KUBERNETES.folder) == {"lock", "failed"}
    assert len(builds(go)) == 1


def test_tests_do_not_repeat_a_build_that_has_just_failed_but_the_command_does(
    go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTBED_BROKEN", "yes")
    assert main(["build", SCHEDULER]) == 1
    with pytest.raises(RunError, match=r"has just failed there \(go build .*run `make testbed`"):
        test_programs.find([SCHEDULER])
    assert len(builds(go)) == 1
    monkeypatch.delenv("TESTBED_BROKEN")
    assert main(["build", SCHEDULER]) == 0
    assert test_programs.find([SCHEDULER])


def test_a_module_that_cannot_be_built_keeps_no_other_from_it(cache: Path, go: Path) -> None:
    (cache / "programs").mkdir(parents=True)
    (cache / "programs" / go_modules.helm().folder).touch()
    with pytest.raises(InputError, match=r"helm-.*is no folder; let REKINDLE_TESTBED"):
        test_programs.find([SCHEDULER, "helm"])
    assert len(builds(go)) == 1
    assert test_programs.find([SCHEDULER])


def test_programs_of_another_recipe_lie_in_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    before = KUBERNETES.folder
    assert before.startswith("kubernetes-1.34.4-linux-")
    monkeypatch.setitem(go_modules.SETTINGS, "GOAMD64", "v3")
    assert KUBERNETES.folder != before
    monkeypatch.undo()
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert "-aarch64-" in KUBERNETES.folder


def test_the_cache_is_emptied_of_what_can_be_made_again_and_of_nothing_else(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    archives = tmp_path / "xdg" / "rekindle" / "class-archives"
    ours = (
        keep_programs(cache, ETCD),
        cache / "1.34.4",
        cache / "definitions" / "example.com@v1",
    )
    theirs = cache / "holidays"
    locked = cache / "helm-4.3.1"
    unused, used = archives / "0123456789abcdef", archives / "fedcba9876543210"
    for folder in (*ours, theirs, locked, unused, used):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()
    with cached_files.locked(locked, lambda _: None):
        assert main(["clean-cache"]) == 0
    assert locked.exists()
    assert theirs.exists()
    assert unused.exists(), "it does not lie in the folder that REKINDLE_TESTBED names"
    assert not any(folder.exists() for folder in ours)
    monkeypatch.delenv("REKINDLE_TESTBED")
    with cached_files.in_use(used):
        assert main(["clean-cache"]) == 0
        assert used.exists(), "a cluster runs from it"
    assert not unused.exists()
    assert main(["clean-cache"]) == 0
    assert not used.exists()


def test_replacements_by_folders_become_modules_of_the_same_version() -> None:
    composed = go_modules.compose(go_modules.kubernetes("1.34.4"), UPSTREAM)
    assert composed == (
        "module testbed\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v1.34.4\n\nreplace (\n"
        "\tk8s.io/api => k8s.io/api v0.34.4\n\tk8s.io/kubectl => k8s.io/kubectl v0.34.4\n)\n"
    )


def test_a_module_without_replacements_is_only_required() -> None:
    wanted = go_modules.helm()
    composed = go_modules.compose(wanted, "module x\n\ngo 1.25.0\n")
    assert composed == (
        f"module testbed\n\ngo 1.25.0\n\nrequire {wanted.module} {wanted.version}\n"
    )


def test_the_command_line_refuses_a_program_that_it_does_not_know(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["build", "kubeadm"]) == 2
    assert "PROGRAM: is 'kubeadm'; choose etcd or" in capsys.readouterr().err
