"""DuckDB as the batch engine: runs statements, and turns its errors into ours.

It knows nothing of reports and queries. `batch_check` and `row_differences` run their statements
through it.

Why: docs/decisions/0021-one-sql-engine-checks-the-output.md.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import duckdb

from rekindle.model.errors import InputError, first_line
from rekindle.verification.evidence_files import REMEDY


class BatchEngine:
    """A context manager: inside, a database in memory whose time zone is UTC.

    `where` names the file that a statement is about: what fails is bad input, an InputError
    that names it. Ctrl-C during a statement is a KeyboardInterrupt, as anywhere else.
    """

    def __init__(self) -> None:
        self._connection = duckdb.connect()

    def __enter__(self) -> Self:
        self.ask("SET TimeZone = 'UTC'", "the time zone")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def ask(self, sql: str, where: str) -> list[tuple[Any, ...]]:
        """Run one statement, give its rows."""
        try:
            answer = self._connection.execute(sql)
            return answer.fetchall() if answer else []  # comments alone give no answer
        except duckdb.InterruptException as error:
            raise KeyboardInterrupt from error
        except RuntimeError as error:  # what DuckDB makes of a KeyboardInterrupt in mid-query
            if "interrupted" not in str(error):
                raise
            raise KeyboardInterrupt from error
        except duckdb.Error as error:
            what = f"cannot be used ({first_line(error)})"
            raise InputError(where=where, what=what, remedy=REMEDY) from error

    def number(self, select: str, where: str) -> int:
        """Give the one number that a SELECT gives."""
        return int(self.ask(select, where)[0][0])

    def columns(self, table: str, where: str) -> Mapping[str, str]:
        """Give the columns of a table in order, each with its type."""
        return {str(row[0]): str(row[1]) for row in self.ask(f"DESCRIBE {table}", where)}


def literal(value: str) -> str:
    """A string in SQL."""
    return "'" + value.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def scan(path: str, first_row: int | None = None, rows: int = 0) -> str:
    """What a Parquet file has, in SQL behind FROM: all of it, or so many `rows` from one on."""
    read = f"read_parquet({literal(path)}, hive_partitioning = false"
    if first_row is None:
        return f"{read})"
    end = first_row + rows
    part = f"{read}, file_row_number = true) WHERE file_row_number >= {first_row}"
    return f"(FROM {part} AND file_row_number < {end})"
