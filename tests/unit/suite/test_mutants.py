"""The faults of `make mutants` fit the tree, and what comes of their tests is judged rightly."""

from pathlib import Path

from mutants import catalogue, trials
from mutants.copies import Finished
from mutants.trials import Outcome

ROOT = Path(__file__).parents[3]


def test_every_fault_changes_one_place_and_names_tests_that_are_there() -> None:
    catalogue.check(catalogue.load(), ROOT)


def test_a_fault_is_found_by_a_test_that_fails_and_by_no_file_that_cannot_be_imported() -> None:
    failed = trials._judged(Finished(1, "FAILED tests/test_a.py::test_b - assert 1 == 2"))
    assert failed[:2] == (Outcome.FOUND, "tests/test_a.py::test_b")
    logged = "ERROR    rekindle_spark.driver:driver.py:7 it is lost\n"
    failed = trials._judged(Finished(1, f"{logged}FAILED tests/test_a.py::test_b - assert 1 == 2"))
    assert failed[:2] == (Outcome.FOUND, "tests/test_a.py::test_b")
    outcome, _, text = trials._judged(Finished(1, "ERROR tests/test_a.py - ImportError"))
    assert outcome is Outcome.ERROR
    assert text.startswith("tests/test_a.py cannot be imported")
