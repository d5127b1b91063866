"""`kubectl rekindle --version`: who reads it compares it with the operator's."""

import pytest

import rekindle
from rekindle_operator.kubectl import plugin_main


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin_main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"kubectl rekindle {rekindle.__version__}\n"
