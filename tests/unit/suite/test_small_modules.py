"""A module is a subject: the product has few small ones that only one other module imports.

Such a module is often a part of the one that imports it. A reader then opens two files for one
subject.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
PRODUCT = ("recovery", "operator")
ROOTS = (*PRODUCT, "benchmarks", "e2e")
SMALL_LINES = 100
# Lower it when there are fewer.
SMALL_MODULES_MAX = 12


def modules(*roots: str) -> dict[str, Path]:
    """Files by the dotted name of their module; packages by their own name."""
    return {
        ".".join(file.relative_to(ROOT / root).with_suffix("").parts).removesuffix(
            ".__init__"
        ): file
        for root in roots
        for file in (ROOT / root).rglob("*.py")
    }


def imported(text: str, known: Mapping[str, object]) -> Iterator[str]:
    """The modules among `known` that a text imports, anywhere in it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names if item.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for item in node.names:
                whole = f"{node.module}.{item.name}"
                if whole in known or node.module in known:
                    yield whole if whole in known else node.module


def small_with_one_importer(texts: Mapping[str, str]) -> dict[str, str]:
    """Modules of fewer than SMALL_LINES lines that one other module imports, with that one."""
    importers: dict[str, set[str]] = {}
    for name, text in texts.items():
        for found in set(imported(text, texts)) - {name}:
            importers.setdefault(found, set()).add(name)
    return {
        name: min(of_one)
        for name, of_one in sorted(importers.items())
        if len(of_one) == 1 and len(texts[name].splitlines()) < SMALL_LINES
    }


def test_few_small_modules_have_one_importer() -> None:
    texts = {name: file.read_text(encoding="utf-8") for name, file in modules(*ROOTS).items()}
    product = {
        name
        for name, file in modules(*PRODUCT).items()
        if file.name not in ("__init__.py", "__main__.py")
    }
    found = {
        name: importer
        for name, importer in small_with_one_importer(texts).items()
        if name in product
    }
    listed = "\n".join(f"  {name}, imported by {importer}" for name, importer in found.items())
    assert len(found) <= SMALL_MODULES_MAX, (
        f"{len(found)} modules of fewer than {SMALL_LINES} lines have one importer, the limit is "
        f"{SMALL_MODULES_MAX}; put one that you have added into its importer, or make both one "
        f"module with a name of its own:\n{listed}"
    )


def test_a_small_module_is_found_by_either_form_of_import() -> None:
    texts = {
        "box": '"""A package."""\n',
        "box.first": "X = 1\n",
        "box.second": "X = 2\n",
        "box.shared": "X = 3\n",
        "box.long": "X = 4\n" * SMALL_LINES,
        "box.top": "from box import first, shared, long\ndef f():\n    from box.second import X\n",
        "other": "import box.shared\n",
    }
    assert small_with_one_importer(texts) == {"box.first": "box.top", "box.second": "box.top"}
