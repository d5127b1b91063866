"""The console in a real browser, served by a real coordinator from records of a real ZooKeeper."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from chromium_browser import LOUD, Browser, find
from coordinator_views import Coordinate, Drive
from store_driver import StoreDriver, lose_three
from waiting import wait_until

from rekindle.model.topology import Query, Topology, TopologyOperator
from rekindle.protocol.store_paths import Place
from rekindle_bench.application_fleet import Fleet, Member, shape
from rekindle_local.port_reservation import hold_port
from rekindle_testing.coordinator_process import CoordinatorProcess
from rekindle_zookeeper import Connection

pytest_plugins = ("coordinator_fixtures",)

# without a slash, which no name of an operator may hold
MARKUP = '<img src=x onerror="window.hit=1"><script>window.hit=1\'&'
QUERIES = 1_000
TEXT = "document.getElementById('live').textContent"


@pytest.fixture(scope="session", autouse=True)
def program() -> str:
    """The browser; without it these tests are left out, and say so."""
    found = find()
    if found is None:
        pytest.skip(f"{LOUD}: install Chromium, on Debian `make packages PACKAGES=chromium` (root)")
    return found


@pytest.fixture
def browser(program: str) -> Iterator[Browser]:
    with Browser(program) as started:
        yield started


@pytest.fixture
def port() -> Iterator[int]:
    """One on which a coordinator listens that is started again."""
    with hold_port("127.0.0.1") as held:
        yield int(held.getsockname()[1])


def served(coordinator: CoordinatorProcess, path: str = "") -> str:
    return f"http://127.0.0.1:{coordinator.console_port}/{path}"


def whole(driver: StoreDriver, coordinator: CoordinatorProcess, browser: Browser) -> None:
    """The application's page is open, and all its queries run."""
    wait_until(lambda: driver.is_whole)
    browser.open(served(coordinator, "applications/test/flights"))
    browser.wait_until(f"{TEXT}.includes('queries run.')")
    browser.wait_until("document.querySelector('h1').textContent.startsWith('All')")


def complaints(browser: Browser) -> list[str]:
    """What the browser found wrong with pages and scripts."""
    kinds = ("Log.entryAdded", "Runtime.exceptionThrown")
    return [str(item) for item in browser.said if item.get("method") in kinds]


def asked(browser: Browser) -> set[str]:
    """The hosts that the browser asked something of."""
    urls = [
        item["params"]["request"]["url"]
        for item in browser.said
        if item.get("method") == "Network.requestWillBeSent"
    ]
    return {url.split("/")[2] for url in urls if url.startswith("http")}


def test_an_incident_is_seen_as_it_happens_and_a_browser_that_reconnects_goes_on(
    coordinate: Coordinate, drive: Drive, browser: Browser, port: int
) -> None:
    driver, coordinator = drive(), coordinate(console_port=port)
    whole(driver, coordinator, browser)
    browser.evaluate("window.same = 1")
    lose_three(driver)
    browser.wait_until(f"{TEXT}.includes('3 nodes lost.')")
    browser.wait_until(f"{TEXT}.includes('Plan 2 of incident 1 (correlated-failure)')")
    browser.wait_until(f"{TEXT}.includes('Who waits for what')")
    browser.wait_until("document.querySelectorAll('svg.drawing polygon').length === 2")
    assert browser.evaluate("document.title").startswith("Rekindle: 3 nodes lost.")
    coordinator.kill()
    browser.wait_until("document.getElementById('clock').textContent.startsWith('no answer')")
    coordinator.start()
    browser.wait_until("document.getElementById('clock').textContent.endsWith('UTC')")
    browser.wait_until(f"{TEXT}.includes('3 nodes lost.')")
    assert browser.evaluate("window.same") == 1
    hosts = asked(browser)
    assert hosts == {f"127.0.0.1:{coordinator.console_port}"}


def test_a_query_is_explained_and_a_failure_domain_is_rehearsed(
    coordinate: Coordinate, drive: Drive, browser: Browser
) -> None:
    driver, coordinator = drive(), coordinate(console_port=0)
    whole(driver, coordinator, browser)
    browser.open(served(coordinator, "applications/test/flights/forecast"))
    browser.wait_until(f"{TEXT}.includes('Each loss was rehearsed')", seconds=300.0)
    lose_three(driver)
    browser.open(served(coordinator, "applications/test/flights/query?name=busiest"))
    browser.wait_until(f"{TEXT}.includes('busiest waits, with')", seconds=300.0)
    browser.wait_until(f"{TEXT}.includes('more nodes')")
    assert complaints(browser) == []


def named_by_others(name: str) -> Topology:
    """Queries whose names are markup."""
    names = [f"{name}-{index}" for index in range(3)]
    return Topology(
        operators=tuple(TopologyOperator(item, 1) for item in names),
        edges=(),
        queries=tuple(Query(item, item, 5) for item in names),
    )


def test_a_thousand_queries_stay_readable_and_names_with_markup_stay_text(
    store_records: Connection, coordinate: Coordinate, browser: Browser
) -> None:
    members = [
        Member(Place("test", "large"), shape(QUERIES), partition_percent=0.5),
        Member(Place("test", "hostile"), named_by_others(MARKUP)),
        *(Member(Place("fleet", f"a{index:03}"), shape(4)) for index in range(60)),
    ]
    seen = next(iter(members[1].nodes.values()))
    members[1].nodes[f"{MARKUP}-node"] = msgspec.structs.replace(seen, domain=MARKUP)
    Fleet(store_records, members).write()
    coordinator = coordinate(console_port=0)
    browser.open(served(coordinator))
    browser.wait_until(f"{TEXT}.includes('1 to 50 of 62 applications')")
    browser.open(served(coordinator, "applications/test/large"))
    browser.wait_until(f"{TEXT}.includes('1 to 50 of 1,000 queries')")
    rows = "document.querySelector('[aria-labelledby=queries] tbody').rows"
    assert browser.evaluate(f"{rows}.length") == 50
    assert browser.evaluate(f"{rows}[0].cells[1].textContent") == "10"
    assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for path in ("", "/forecast"):
        browser.open(served(coordinator, f"applications/test/hostile{path}"))
        browser.wait_until(f"{TEXT}.includes('<script>window.hit=1')")
        assert browser.evaluate("document.querySelectorAll('main img').length") == 0
    browser.open(served(coordinator, "applications/test/hostile"))
    link = browser.evaluate(f"{rows}[0].cells[0].querySelector('a').href")
    browser.open(link)
    browser.wait_until(f"{TEXT}.includes('<script>window.hit=1')")
    assert browser.evaluate("window.hit === undefined")
    assert complaints(browser) == []


def test_without_scripts_the_pages_show_the_same_and_load_themselves_again(
    program: str, coordinate: Coordinate, drive: Drive, tmp_path: Path
) -> None:
    driver, coordinator = drive(), coordinate(console_port=0)
    wait_until(lambda: driver.is_whole)
    with Browser(program, script=False) as browser:
        browser.open(served(coordinator, "applications/test/flights"))
        until = time.monotonic() + 120
        lose_three(driver)
        while "3 nodes lost." not in browser.document():
            assert time.monotonic() < until, browser.document()[:4_000]
            time.sleep(1.0)
        browser.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
