"""Tests and cases of the laboratory give the product its real settings, never a stand-in.

A stand-in for settings has the fields of the day on which it was written: the next one that the
product reads fails there, or reads as something that no file could say.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
SETTINGS = {"settings", "runtime", "policy"}
STAND_INS = ("SimpleNamespace", "Mock", "MagicMock")


def stand_ins(text: str) -> Iterator[int]:
    """The lines on which something called settings is a `SimpleNamespace`."""
    if not any(name in text for name in STAND_INS):
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.keyword(arg=str(name), value=value):
                names = {name}
            case ast.Assign(targets=targets, value=value):
                names = {ast.unparse(target).split(".")[-1] for target in targets}
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                names = {ast.unparse(target).split(".")[-1]}
            case _:
                continue
        if not names & SETTINGS or not isinstance(value, ast.Call):
            continue
        if ast.unparse(value.func).split(".")[-1] in STAND_INS:
            yield value.lineno


def test_nobody_stands_in_for_settings() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in stand_ins(path.read_text(encoding="utf-8"))
    ]
    assert not found, f"give these `rekindle.model.settings.Settings`: {found}"


@pytest.mark.parametrize(
    "text",
    [
        "a = N(settings=SimpleNamespace(x=1))",
        "a.settings = types.SimpleNamespace()",
        "policy: Any = SimpleNamespace()",
    ],
)
def test_a_stand_in_is_found(text: str) -> None:
    assert list(stand_ins(text)) == [1]
