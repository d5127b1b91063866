"""Which page an address means, and the address of a page.

    /                                       all applications
    /applications/NAMESPACE/APP             one of them
    /applications/NAMESPACE/APP/query       one of its queries, ?name=QUERY
    /applications/NAMESPACE/APP/incident    one of its incidents, ?number=N
    /applications/NAMESPACE/APP/forecast    what the loss of each failure domain would do

Links are relative to the page that they stand on, so a proxy may serve the console below any path.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import quote, unquote, urlencode

from rekindle.model.errors import InputError
from rekindle.protocol.store_paths import Place

FOLDER = "applications"
NUMBER_DIGITS_MAX = 9
TEXT_LENGTH_MAX = 300


class PageKind(StrEnum):
    """What a page shows."""

    OVERVIEW = "overview"
    APPLICATION = "application"
    QUERY = "query"
    INCIDENT = "incident"
    FORECAST = "forecast"


BELOW = {
    "query": PageKind.QUERY,
    "incident": PageKind.INCIDENT,
    "forecast": PageKind.FORECAST,
}


@dataclass(frozen=True, slots=True)
class Address:
    """A page: `query` is the name of a query, `incident` the number of an incident, `page` which
    part of a long list, `state` and `find` what the list is narrowed to."""

    kind: PageKind = PageKind.OVERVIEW
    application: str = ""
    query: str = ""
    incident: int = 0
    page: int = 1
    state: str = ""
    find: str = ""

    def at(self, page: int) -> "Address":
        """Another part of the same list."""
        return replace(self, page=page)


def parse(path: str, parameters: Mapping[str, str]) -> Address | None:
    """The page of a path as a browser sends it, with its percent signs; None for no page."""
    parts = [unquote(part) for part in path.strip("/").split("/")] if path.strip("/") else []
    page = _number(parameters.get("page", "")) or 1
    state, find = (parameters.get(name, "")[:TEXT_LENGTH_MAX] for name in ("state", "find"))
    if not parts:
        return Address(page=page, state=state, find=find)
    if parts[0] != FOLDER or len(parts) not in (3, 4):
        return None
    try:
        application = str(Place(parts[1], parts[2]).checked())
    except InputError:
        return None
    if len(parts) == 3:
        return Address(PageKind.APPLICATION, application, page=page, state=state, find=find)
    kind = BELOW.get(parts[3])
    query, number = parameters.get("name", ""), _number(parameters.get("number", ""))
    match kind:
        case PageKind.QUERY if 0 < len(query) <= TEXT_LENGTH_MAX:
            return Address(kind, application, query=query)
        case PageKind.INCIDENT if number:
            return Address(kind, application, incident=number)
        case PageKind.FORECAST:
            return Address(kind, application)
    return None


def root(address: Address) -> str:
    """The way from a page up to the folder of all pages."""
    if address.kind is PageKind.OVERVIEW:
        return "./"
    return "../../" if address.kind is PageKind.APPLICATION else "../../../"


def link(address: Address) -> str:
    """A page's address below that folder."""
    path = _path(address)
    parameters = {
        "name": address.query,
        "number": address.incident or "",
        "state": address.state,
        "find": address.find,
        "page": "" if address.page == 1 else address.page,
    }
    given = {name: value for name, value in parameters.items() if value}
    return f"{path}?{urlencode(given, quote_via=quote)}" if given else path


def events(address: Address) -> str:
    """Where the news of a page come from, below that folder."""
    path, _, parameters = link(address).partition("?")
    return f"events?path=/{path}" + (f"&{parameters}" if parameters else "")


def _path(address: Address) -> str:
    if address.kind is PageKind.OVERVIEW:
        return ""
    path = f"{FOLDER}/{quote(address.application)}"
    return path if address.kind is PageKind.APPLICATION else f"{path}/{address.kind}"


def _number(text: str) -> int:
    plain = text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX
    return int(text) if plain else 0
