"""What the wheels hold: the product's packages in one, the laboratory's in the other."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from images.image_wheels import build_own

ROOT = Path(__file__).parents[3]
PRODUCT = {
    "rekindle",
    "rekindle_cli",
    "rekindle_console",
    "rekindle_coordinator",
    "rekindle_local",
    "rekindle_operator",
    "rekindle_sidecar",
    "rekindle_spark",
    "rekindle_store",
    "rekindle_zookeeper",
}
LABORATORY = {
    "rekindle_bench",
    "rekindle_chaos",
    "rekindle_peers",
    "rekindle_simulation",
    "rekindle_testing",
}


def files(folder: Path) -> list[str]:
    """Of the only wheel in a folder, without what describes it."""
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


def test_the_products_wheel_has_nothing_of_the_laboratory(tmp_path: Path) -> None:
    build_own(ROOT, tmp_path, log=tmp_path / "log")
    found = files(tmp_path)
    print(*found, sep="\n")
    assert {name.partition("/")[0] for name in found} == PRODUCT
    kinds = {Path(name).suffix for name in found}
    pages = {".css", ".html", ".js"}
    assert kinds <= {".py", ".jar", ".sql", ".typed", ".template", ".yaml"} | pages, (
        "sources of Java, tests or data of others"
    )
    assert {Path(name).parent.name for name in found if Path(name).suffix in pages} == {"templates"}
    assert [name for name in found if name.endswith(".jar")] == [
        "rekindle_spark/spark/jvm/rekindle-exchange.jar"
    ]
    with zipfile.ZipFile(ROOT / "recovery/rekindle_spark/spark/jvm/rekindle-exchange.jar") as jar:
        names = [Path(name) for name in jar.namelist()]
    classes = {name.stem.partition("$")[0] for name in names if name.suffix == ".class"}
    sources = {file.stem for file in (ROOT / "recovery/rekindle_spark/spark/jvm").glob("*.java")}
    assert classes == sources


def test_the_laboratorys_wheel_has_nothing_of_the_product(tmp_path: Path) -> None:
    copy = tmp_path / "benchmarks"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(ROOT / "benchmarks", copy, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*command, str(copy)], check=True)
    assert {name.partition("/")[0] for name in files(tmp_path)} == LABORATORY
