"""Splits `queries.sql` into its sections: a prelude, then one SELECT per query.

    -- prelude
    CREATE VIEW late AS SELECT * FROM flights WHERE dep_delay > 15;
    -- query: late-by-carrier
    SELECT carrier, count(*) AS flights FROM late GROUP BY carrier;

Runs nothing. `batch_check` calls it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rekindle.model.errors import InputError

__all__ = ["Statements", "split"]

HEADING = re.compile(r"^--\s*(?:(prelude)|query:\s*(\S+))\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statements:
    """`prelude` is run first; `queries` gives one SELECT per query, without semicolon."""

    prelude: str
    queries: Mapping[str, str]


def split(sql: str, where: str = "queries.sql") -> Statements:
    """Split the text; InputError for text before the first heading and for empty sections."""
    headings = list(HEADING.finditer(sql))
    opening = sql[: headings[0].start()] if headings else sql
    if _without_comments(opening):
        raise _bad(where, "has a statement before the first `-- prelude` or `-- query: NAME`")
    ends = [heading.start() for heading in headings[1:]] + [len(sql)]
    prelude: list[str] = []
    queries: dict[str, str] = {}
    for heading, end in zip(headings, ends, strict=True):
        body, name = sql[heading.end() : end].strip(), heading.group(2)
        if name is None:
            prelude.append(body)
            continue
        if name in queries:
            raise _bad(where, f"has the query {name} twice")
        if not _without_comments(body):
            raise _bad(where, f"has no statement for the query {name}")
        queries[name] = body.rstrip().rstrip(";")
    return Statements("\n".join(prelude), queries)


def _without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*", "", sql).strip()


def _bad(where: str, what: str) -> InputError:
    return InputError(
        where=where, what=what, remedy="restore the file from the run, or run the demo again"
    )
