"""Print the modules of tests as arguments of mypy, for `make lint`.

Tests import what they share by its bare name, from folders that pytest or a conftest.py puts on the
path; mypy finds it in the same folders (`mypy_path` in pyproject.toml). Everything else has its
path for a name, since each folder has a conftest.py of its own.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]
BY_PATH = ("test_", "conftest", "case_", "stages")


def modules() -> list[str]:
    """The names of all modules in tests but those of the package `mutants`."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    return [_name(path.relative_to(ROOT)) for path in paths if path.parent.name != "mutants"]


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts) if path.stem.startswith(BY_PATH) else path.stem


if __name__ == "__main__":
    print(*(f"-m{name}" for name in modules()))
