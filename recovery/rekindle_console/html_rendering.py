"""Pages as HTML: Jinja2 templates that escape everything, and the files beside them.

    fragment   what a page shows, and what is sent again when it has changed
    whole      the page around it

Names of applications, queries and nodes come from others, so no template marks anything as safe,
but for the fragment in its own page.
"""

from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rekindle.page_style import PAGE, TABLES, VARIABLES
from rekindle_console import page_text
from rekindle_console.page_addresses import Address, events, root

PACKAGE = "rekindle_console"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clipped"] = page_text.clipped
    return environment


def fragment(template: str, page: object, address: Address) -> str:
    """What a page shows, by its template and its values."""
    found = _environment().get_template(f"{template}.html")
    return found.render(page=page, root=root(address), address=address)


def whole(shown: str, title: str, address: Address, news: str, at: str) -> str:
    """The page around a fragment: `news` is where the same comes again when it has changed, "" for
    a page without news; `at` is the time of day."""
    return (
        _environment()
        .get_template("page.html")
        .render(
            shown=Markup(shown),
            title=title,
            root=root(address),
            news=news,
            at=at,
        )
    )


def news_of(address: Address, digest: str) -> str:
    """Where news of a page come from for who has seen the one of that digest."""
    path = events(address)
    return f"{root(address)}{path}&seen={digest}"


@cache
def style_sheet() -> str:
    """The style sheet: that of all our pages, and the console's own."""
    return "\n".join((VARIABLES, PAGE, TABLES, _file("console.css")))


@cache
def script() -> str:
    """The one script, which takes news from the server; all pages work without it."""
    return _file("console.js")


def _file(name: str) -> str:
    return files(PACKAGE).joinpath("templates", name).read_text(encoding="utf-8")
