"""What tests patch in the product by a string is there.

`monkeypatch.setattr(module, "name", ...)` and its like name it in a string, at which mypy does not
look.
"""

import ast
import functools
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OURS = {
    path.parent.name
    for root in ("recovery", "operator", "e2e", "benchmarks")
    for path in (ROOT / root).glob("*/__init__.py")
}
FOLDERS = ("cluster", "integration", "kubernetes", "lab", "unit")
PATCHES = {"setattr", "delattr", "object", "patch"}


def patched(text: str) -> Iterator[str]:
    """The dotted names in the product that a file patches by a string."""
    if "setattr" not in text and "patch" not in text:
        return
    nodes = tuple(ast.walk(ast.parse(text)))
    imported: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            imported |= {item.asname: item.name for item in node.names if item.asname}
        elif isinstance(node, ast.ImportFrom):
            for item in node.names:
                imported[item.asname or item.name] = f"{node.module}.{item.name}"
    for node in nodes:
        # A variable may have the name of something that is imported elsewhere in the file.
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            imported.pop(node.id, None)
        elif isinstance(node, ast.arg):
            imported.pop(node.arg, None)
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in PATCHES:
                continue
            match [*node.args[:2]]:
                case [ast.Constant(value=str(name)), *_] if "." in name:
                    found = name
                case [ast.expr() as target, ast.Constant(value=str(name))]:
                    first, *rest = ast.unparse(target).split(".")
                    found = ".".join([imported.get(first, ""), *rest, name])
                case _:
                    continue
            if found.split(".")[0] in OURS:
                yield found


@functools.cache
def is_there(name: str) -> bool:
    """Whether a dotted name can be resolved; an annotation without a value counts."""
    owner, _, last = name.rpartition(".")
    try:
        found = pkgutil.resolve_name(owner)
    except (ImportError, AttributeError):
        return False
    return hasattr(found, last) or last in getattr(found, "__annotations__", {})


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_tests_patch_is_there(folder: str) -> None:
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in sorted((ROOT / "tests" / folder).rglob("*.py"))
        if (names := [name for name in patched(path.read_text()) if not is_there(name)])
    }
    assert found == {}


def test_a_name_that_is_gone_is_found() -> None:
    text = (
        "from rekindle_operator.webhook import pod_patch\n"
        "from rekindle_spark.executor.stack_sampler import StackSampler\n"
        "def test(monkeypatch):\n"
        "    monkeypatch.setattr(pod_patch, 'lost', None)\n"
        "    monkeypatch.setattr(StackSampler, 'look', None)\n"
        "    monkeypatch.setattr(StackSampler, 'lost', None)\n"
        "    mock.patch('rekindle_operator.lost.time')\n"
        "    monkeypatch.setattr(pod_patch.pods, 'GATE', None)\n"
    )
    assert [name for name in patched(text) if not is_there(name)] == [
        "rekindle_operator.webhook.pod_patch.lost",
        "rekindle_spark.executor.stack_sampler.StackSampler.lost",
        "rekindle_operator.lost.time",
    ]
