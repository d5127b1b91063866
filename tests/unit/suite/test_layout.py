"""The limits of STYLE.md on the tree: sizes, docstrings, and words that no file may hold."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from syntax_trees import parsed

ROOT = Path(__file__).parents[3]
# Folders of tests/unit that are about no package.
OF_NO_PACKAGE = ("builders", "chart", "suite")
FUNCTION_LINES_MAX = 60
# A file is a subject: most have 100 to 400 lines.
MODULE_LINES_MAX = 700
SOURCES = sorted(
    file
    for folder in ("recovery", "operator", "benchmarks", "e2e", "tests")
    for file in (ROOT / folder).rglob("*.py")
)
SHIPPED = [file for file in SOURCES if ROOT / "tests" not in file.parents]
PACKAGES = [file for file in SHIPPED if file.name == "__init__.py"]
# A line of a package's docstring that lists a module: a name, two spaces or more, what it is.
LISTED = re.compile(r"^ *(\w+) {2,}\S", re.MULTILINE)
# Put together here, so that this file does not hold them itself.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("crates", "io"),
        ("golang", "org"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("debian", "org"),
        ("anaconda", "org"),
    )
]
FORBIDDEN = re.compile(
    rf"(?<![\w.~)}}-])/(?:{'|'.join(('work', 'root', 'home', 'Users'))})/"
    rf"|(?:{'|'.join(map(re.escape, HOSTS))})\b"
)


def named(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def docstring(file: Path) -> str:
    return ast.get_docstring(parsed(file), clean=False) or ""


def modules_beside(init: Path) -> set[str]:
    """The public modules and packages that lie beside an `__init__.py`."""
    packages = {file.parent.name for file in init.parent.glob("*/__init__.py")}
    return packages | {
        file.stem for file in init.parent.glob("*.py") if not file.stem.startswith("_")
    }


def files_of_the_project() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return (path for path in paths if path.is_file())


def test_no_function_is_longer_than_a_screen() -> None:
    for file in SOURCES:
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                assert lines <= FUNCTION_LINES_MAX, (
                    f"{named(file)}:{node.lineno}: {node.name} has {lines} lines, the limit is "
                    f"{FUNCTION_LINES_MAX}; move a part that has a name of its own into a function"
                )


def test_no_module_is_too_long_to_read_at_once() -> None:
    for file in SOURCES:
        lines = len(file.read_text().splitlines())
        assert lines <= MODULE_LINES_MAX, (
            f"{named(file)} has {lines} lines, the limit is {MODULE_LINES_MAX}; "
            "split it by what its functions are about, each module a noun of its own"
        )


def test_a_modules_docstring_starts_with_one_sentence() -> None:
    for file in SOURCES:
        first, *rest = docstring(file).splitlines() or [""]
        assert first.endswith("."), (
            f"{named(file)}: its docstring must start with one sentence on one line that ends with "
            f"a period, but starts with {first!r}"
        )
        assert not rest or not rest[0].strip(), (
            f"{named(file)}: leave a line free after the sentence"
        )


def test_a_packages_docstring_lists_its_modules() -> None:
    for init in PACKAGES:
        beside, listed = modules_beside(init), set(LISTED.findall(docstring(init)))
        assert not beside - listed, (
            f"{named(init)}: its docstring lists no {sorted(beside - listed)}; add a line "
            "`    name    what it is` for each"
        )
        assert not listed - beside, (
            f"{named(init)}: its docstring lists {sorted(listed - beside)}, which are not there; "
            "remove their lines"
        )


def test_every_folder_of_modules_is_a_package() -> None:
    roots = {ROOT / "recovery", ROOT / "operator", ROOT / "benchmarks"}
    for folder in {file.parent for file in SHIPPED} - roots:
        assert (folder / "__init__.py").exists(), (
            f"{named(folder)}/ holds modules but no __init__.py, so no wheel would hold them; add "
            "one with a docstring that lists them"
        )


def test_every_name_in_all_exists() -> None:
    for file in SHIPPED:
        tree = parsed(file)
        bound = {name for node in tree.body for name in names_bound_by(node)}
        exported = {name for node in tree.body for name in names_exported_by(node)}
        if file.name == "__init__.py":
            bound |= modules_beside(file)
        assert exported <= bound, (
            f"{named(file)}: __all__ names {sorted(exported - bound)}, not there"
        )


def names_bound_by(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    # Imports and assignments, also below `if TYPE_CHECKING:` or `try:`.
    return {
        alias.asname or alias.name
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
        for alias in inner.names
    } | {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }


def names_exported_by(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign) and [*map(ast.unparse, node.targets)] == ["__all__"]:
        return list(ast.literal_eval(node.value))
    return []


def test_unit_tests_lie_in_folders_that_are_named_like_the_packages() -> None:
    roots = [ROOT / root for root in ("recovery", "operator", "benchmarks", "e2e")]
    for folder in sorted((ROOT / "tests" / "unit").rglob("*")):
        below = folder.relative_to(ROOT / "tests" / "unit")
        if not folder.is_dir() or below.parts[0] in OF_NO_PACKAGE or "__pycache__" in below.parts:
            continue
        assert any((root / below).is_dir() for root in roots), (
            f"{named(folder)}: there is no package {below}; tests lie where the code lies"
        )


def test_source_roots_are_no_packages() -> None:
    for root in ("operator", "recovery"):
        assert not (ROOT / root / "__init__.py").exists(), (
            f"remove {root}/__init__.py: {root}/ is a source root, and as a package `operator` "
            "shadows the standard library's"
        )
    assert not (ROOT / "tests" / "operator").exists(), (
        "rename tests/operator: on the path it shadows the standard library's `operator`"
    )


def test_the_standard_librarys_operator_is_not_shadowed() -> None:
    command = [sys.executable, "-S", "-c", "import collections, operator"]
    subprocess.run(command, cwd=ROOT, check=True)


def test_no_file_names_a_path_of_a_machine_or_a_package_registry() -> None:
    for file in files_of_the_project():
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), start=1):
            found = FORBIDDEN.search(line)
            assert found is None, (
                f"{named(file)}:{number}: holds {found[0]!r}; a path comes from an argument or "
                "from where the file lies, and the registry from the machine's own settings"
            )
