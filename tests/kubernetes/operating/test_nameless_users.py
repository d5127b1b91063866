"""An operator in a container, where its user's number stands in no list of users."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from operator_process import OperatorProcess

NOBODY = """
import pwd

def nobody(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")

pwd.getpwuid = nobody
"""


def test_an_operator_whose_user_has_no_name_is_well(
    operators: Callable[..., OperatorProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOBODY)
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    operator = operators("operator-of-nobody")
    operator.lead()
    assert operator.lines("thread-ended") == []
    assert '"healthy": true' in operator.page("/health")
