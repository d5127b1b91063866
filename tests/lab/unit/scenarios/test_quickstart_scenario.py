"""A page's commands as a program, what it shows of them, and the rows that its pipeline writes."""

import re
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest

from rekindle.model import record_format
from rekindle.model.errors import InputError, RunError
from scenarios import docs_instructions, example_rows, quickstart_scenario

NAME = "docs/page.md"
ROOT = Path(__file__).parents[4]
PAGE = """# Title

<!-- yours: what is not here -->
```sh
NAME=reader
SIZE=1
```

Prose, and a block that is not run:

    false

```sh
echo "$NAME: 12 rows in 1 min 3 s"
```

Which says:

```text
reader:   7 rows in 45 s
```

```sh
missing=$(false || echo none)
echo "$missing"
```
"""


def run(page: str, folder: Path, *yours: str) -> subprocess.CompletedProcess[str]:
    file = folder / "page.sh"
    file.write_text(docs_instructions.script(docs_instructions.blocks(page, NAME), yours, folder))
    return subprocess.run(["bash", "-eu", str(file)], capture_output=True, text=True, check=False)


def printed(page: str, folder: Path) -> list[str]:
    logs = (docs_instructions.log(folder, block) for block in docs_instructions.blocks(page, NAME))
    return [log.read_text() for log in logs if log.exists()]


def test_a_pages_blocks_have_their_lines_and_what_is_shown_of_them() -> None:
    yours, said, last = docs_instructions.blocks(PAGE, NAME)
    assert (yours.line, said.line, last.line) == (4, 13, 23)
    assert [block.is_yours for block in (yours, said, last)] == [True, False, False]
    assert said.shown == ("reader:   7 rows in 45 s",)
    assert last.commands == ("missing=$(false || echo none)", 'echo "$missing"')


def test_blocks_run_in_one_shell_with_somebody_elses_in_the_place_of_the_readers(
    tmp_path: Path,
) -> None:
    assert run(PAGE, tmp_path, "NAME=nobody").returncode == 0
    assert printed(PAGE, tmp_path) == ["", "nobody: 12 rows in 1 min 3 s\n", "none\n"]


def test_what_fails_is_the_last_block_with_a_log_and_has_its_line_on_the_page(
    tmp_path: Path,
) -> None:
    broken = PAGE.replace('echo "$NAME', 'no-such-program "$NAME')
    assert run(broken, tmp_path, "NAME=nobody").returncode != 0
    assert len(printed(broken, tmp_path)) == 2
    assert "page.sh: line 14: no-such-program" in printed(broken, tmp_path)[-1]


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("reader: 12 rows in 1 min 3 s", None),
        ("before\nreader: 1,200 rows in 0.5 s\nafter", None),
        ("reader: no rows in 45 s", "reader:   7 rows in 45 s"),
        ("", "reader:   7 rows in 45 s"),
    ],
)
def test_numbers_may_differ_from_what_is_shown_and_words_may_not(
    said: str, missing: str | None
) -> None:
    block = docs_instructions.blocks(PAGE, NAME)[1]
    assert docs_instructions.unprinted(block, said) == missing


def test_lines_are_shown_in_the_order_in_which_they_are_printed() -> None:
    (block,) = docs_instructions.blocks("```sh\nls\n```\n```text\na\n...\n\nb\n```\n", NAME)
    assert docs_instructions.unprinted(block, "a\nc\nb") is None
    assert docs_instructions.unprinted(block, "b\na") == "b"


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```sh\nls\n", "docs/page.md:1: begins a block that does not end"),
        ("words\n\n```text\na\n```\n", "docs/page.md:3: shows what no commands"),
        (
            "```sh\nls\n```\n```text\na\n```\n```text\na\n```\n",
            "docs/page.md:7: shows what no commands",
        ),
    ],
)
def test_a_page_that_cannot_be_followed_is_refused_with_its_line(page: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        docs_instructions.blocks(page, NAME)


def test_commands_that_do_not_fit_in_the_place_of_the_readers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the page:4: has 2 lines, 3 of ours"):
        docs_instructions.script(docs_instructions.blocks(PAGE, NAME), ["a", "b", "c"], tmp_path)


def test_the_quickstart_is_a_program_and_all_that_is_the_readers_has_something_in_its_place(
    tmp_path: Path,
) -> None:
    found = docs_instructions.blocks(quickstart_scenario.PAGE.read_text(), NAME)
    program = tmp_path / "page.sh"
    program.write_text(docs_instructions.script(found, quickstart_scenario.YOURS, tmp_path))
    subprocess.run(["bash", "-n", str(program)], check=True)
    names = re.compile(r"^(\w+)(?:=|\(\))", re.MULTILINE)
    (yours,) = [block for block in found if block.is_yours]
    assert names.findall("\n".join(yours.commands)) == names.findall(
        "\n".join(quickstart_scenario.YOURS)
    )


def test_the_quickstart_names_files_that_are_there() -> None:
    text = quickstart_scenario.PAGE.read_text()
    for name in re.findall(r"\b(?:examples|charts|crds|spark-images)/[\w./-]*", text):
        assert (ROOT / name).exists(), name


# Three machines for two minutes and a half; the third one is as hot as the second.
READINGS = """
SELECT TIMESTAMP '2026-01-01' + to_seconds(second) AS event_time, 'm' || machine AS machine,
       least(machine, 2) + second / 100 AS celsius
FROM range(150) seconds(second), range(4) machines(machine)
ORDER BY second, machine
"""
MINUTES = """
SELECT machine, date_trunc('minute', event_time) AS window_start,
       window_start + INTERVAL 1 MINUTE AS window_end,
       count(*) AS readings, sum(celsius) / count(*) AS mean, max(celsius) AS peak
FROM readings GROUP BY ALL
"""
HOTTEST = "SELECT *, CASE machine WHEN 'm2' THEN 1 WHEN 'm3' THEN 2 ELSE 3 END AS rank FROM minutes"


def write(path: Path, sql: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    relation = duckdb.sql(sql)
    assert relation is not None
    relation.write_parquet(str(path))


def finished(shared: Path, *, minutes: str = "FROM minutes", committed: int = 1) -> Path:
    """What a run leaves that has read 500 of the 600 readings."""
    duckdb.sql(f"CREATE OR REPLACE TEMP VIEW every_reading AS {READINGS}")
    duckdb.sql("CREATE OR REPLACE TEMP TABLE readings AS FROM every_reading LIMIT 500")
    duckdb.sql(f"CREATE OR REPLACE TEMP TABLE minutes AS {MINUTES}")
    write(shared / "input" / "readings.parquet", "FROM every_reading")
    outputs = shared / "store" / "outputs"
    write(outputs / "minutes" / "1.parquet", minutes)
    write(outputs / "minutes" / "uncommitted.parquet", "FROM minutes")
    hottest = f"{HOTTEST} WHERE machine <> 'm0'"
    write(outputs / "hottest-machines" / "1.parquet", hottest)
    named = [["minutes/0", 1, 1, "1.parquet", ""]] * committed
    record(shared, "commits", "commit", {"outputs": named})
    record(
        shared, "commits", "commit", {"outputs": [["hottest-machines/0", 1, 1, "1.parquet", ""]]}
    )
    record(shared, "offsets", "offsets", {"offsets": {"readings": [0, 400]}})
    record(shared, "offsets", "offsets", {"offsets": {"readings": [400, 500]}})
    return shared


def record(shared: Path, folder: str, kind: str, content: dict[str, Any]) -> None:
    there = shared / "store" / folder
    there.mkdir(parents=True, exist_ok=True)
    number = len([*there.iterdir()]) + 1
    (there / f"{number}.json").write_bytes(record_format.encode(kind, content))


def test_rows_are_right_that_are_those_of_what_was_read(tmp_path: Path) -> None:
    assert example_rows.check_rows(finished(tmp_path)) == 12 + 9


@pytest.mark.parametrize(
    ("minutes", "committed", "bad"),
    [
        ("FROM minutes WHERE machine <> 'm1'", 1, "'missing': 3"),
        ("FROM minutes", 2, "'duplicated': 12"),
        ("SELECT * REPLACE (peak + 1 AS peak) FROM minutes", 1, "'wrong': 12"),
    ],
)
def test_rows_that_are_not_right_are_counted(
    tmp_path: Path, minutes: str, committed: int, bad: str
) -> None:
    with pytest.raises(RunError, match=bad):
        example_rows.check_rows(finished(tmp_path, minutes=minutes, committed=committed))
