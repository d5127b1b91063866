"""The page of recipes, and that of pipelines: their code runs as it stands."""

import re
import sys
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from rekindle_spark.pipeline.steps import Pipeline
from rekindle_spark.testing import run_pipeline

DOCS = Path(__file__).parents[4] / "docs"
PAGE = DOCS / "recipes.md"
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
NAMES = re.findall(r"^def (test_\w+)", "".join(CODE), re.MULTILINE)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """All code of the page, as a user's file."""
    file = tmp_path_factory.mktemp("recipes") / "recipes.py"
    file.write_text("\n\n".join(CODE), encoding="utf-8")
    specification = util.spec_from_file_location("recipes_of_the_page", file)
    assert specification is not None
    assert specification.loader is not None
    module = util.module_from_spec(specification)
    sys.modules[module.__name__] = module
    specification.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_gives_what_its_page_says(
    recipes: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    getattr(recipes, name)()


def test_each_recipe_has_code_or_is_about_numbers() -> None:
    text = PAGE.read_text("utf-8")
    without = [part.split("\n")[0] for part in text.split("\n## ")[1:] if "```python" not in part]
    assert without == ["Sizing"]
    assert len(NAMES) >= 5


def test_the_source_of_the_page_of_pipelines_keeps_its_contract() -> None:
    section = (DOCS / "pipelines.md").read_text("utf-8").split("### A source of your own\n")[1]
    code, *_ = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"pa": pa}
    exec(code, names)
    ticks = names["Ticks"]()
    built = Pipeline("ticks")
    built.source("ticks", ticks, parallelism=3).sink("out")
    rows = run_pipeline(built, rows_max=10, epochs=4)["out"]
    assert rows.sort_by("tick").equals(ticks.read(0, 10))
    moments = [ticks.event_time_at(offset) for offset in range(100)]
    assert [ticks.rows_at(moment) for moment in moments] == list(range(1, 101))
    assert ticks.rows_at(moments[7] - 1) == 7
