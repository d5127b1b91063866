"""What tests import of the product is there, in those too that few gates run.

Mypy does not check tests, so a module that has moved is noticed by running them; cases of the
laboratory and tests on a cluster run seldom.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOTS = tuple(ROOT / name for name in ("recovery", "operator", "e2e", "benchmarks"))
FOLDERS = tuple(ROOT / "tests" / name for name in ("lab", "kubernetes", "integration"))
OURS = {path.parent.name for root in ROOTS for path in root.glob("*/__init__.py")}


def file_of(module: str) -> Path | None:
    """A module's file; a package's __init__.py."""
    for root in ROOTS:
        path = root.joinpath(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


@functools.cache
def names_in(file: Path) -> frozenset[str]:
    """What a module binds at its top level."""
    found: set[str] = set()
    left: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while left:
        node = left.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
                continue
            case ast.Import() | ast.ImportFrom():
                found.update((item.asname or item.name).split(".")[0] for item in node.names)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
        left.extend(ast.iter_child_nodes(node))
    return frozenset(found)


def has(module: str, name: str) -> bool:
    """Whether a module has a name, or a package such a module."""
    file = file_of(module)
    return file is not None and (
        name.startswith("__") or name in names_in(file) or file_of(f"{module}.{name}") is not None
    )


def missing(text: str) -> Iterator[str]:
    """The product's modules and names that a file imports, or takes of a module, and are not
    there."""
    nodes = tuple(ast.walk(ast.parse(text)))
    modules = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name.split(".")[0] in OURS and file_of(item.name) is None:
                    yield item.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            for item in node.names:
                whole = f"{node.module}.{item.name}"
                if not has(str(node.module), item.name):
                    yield whole
                elif file_of(whole) is not None:
                    modules[item.asname or item.name] = whole
    # A variable may have the name of a module that is imported elsewhere in the file.
    stored = {node.id for node in nodes if _is_stored(node)}
    stored |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module and node.value.id not in stored and not has(module, node.attr):
                yield f"{module}.{node.attr}"


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_tests_take_of_the_product_is_there(folder: Path) -> None:
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in sorted(folder.rglob("*.py"))
        if (names := sorted(missing(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_a_name_that_is_gone_is_found() -> None:
    text = (
        "from rekindle_operator.webhook import gone, pod_patch\n"
        "from rekindle_operator.cluster.pods import pod_seen, lost_name\n"
        "import rekindle_spark.lost\n"
        "pod_patch.spark_container(pod_patch.lost)\n"
    )
    assert sorted(missing(text)) == [
        "rekindle_operator.cluster.pods.lost_name",
        "rekindle_operator.webhook.gone",
        "rekindle_operator.webhook.pod_patch.lost",
        "rekindle_spark.lost",
    ]
