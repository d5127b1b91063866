"""Errors of a store: which are the user's to mend, and what they are told to do."""

import errno

import pytest

from rekindle.model.errors import InputError, RekindleError, RunError
from rekindle_store import store_errors

S3, FOLDER = "s3://bucket/prefix", "/shared/store"
TRUST = "name a file with its authority in AWS_CA_BUNDLE (docs/stores.md)"


def test_a_certificate_that_is_not_trusted_reads_the_same_for_writers_and_readers() -> None:
    error = OSError(errno.EPROTO, "UnknownIssuer\nand a stack")
    texts = {
        str(store_errors.unwritable(S3, error, is_local=False)),
        str(store_errors.unreadable(S3, error, is_local=False)),
    }
    what = "has a certificate that is not trusted (UnknownIssuer)"
    assert texts == {f"checkpoint store {S3}: {what}; {TRUST}"}


def test_an_object_that_is_none_of_a_stores_reads_the_same_for_writers_and_readers() -> None:
    error = OSError(errno.EILSEQ, 'Path "a//b"')
    texts = {
        str(store_errors.unwritable(S3, error, is_local=False)),
        str(store_errors.unreadable(S3, error, is_local=False)),
    }
    what = 'has an object with a name that cannot be read (Path "a//b")'
    assert texts == {f"checkpoint store {S3}: {what}; rename or remove it: it is none of a store's"}


@pytest.mark.parametrize(
    ("number", "kind", "what"),
    [
        (errno.EACCES, InputError, "cannot be written (no)"),
        (errno.ENXIO, InputError, "cannot be written (no)"),
        (errno.EREMOTEIO, RunError, "answers with an error (no)"),
        (errno.EIO, RunError, "does not answer (no)"),
    ],
)
def test_only_a_server_that_may_answer_later_ends_a_run_and_not_its_input(
    number: int, kind: type[RekindleError], what: str
) -> None:
    found = store_errors.unwritable(S3, OSError(number, "no"), is_local=False)
    assert (type(found), found.what) == (kind, what)


@pytest.mark.parametrize(
    ("place", "variable"), [(S3, "AWS_ACCESS_KEY_ID"), ("hdfs://a:8020/store", "HADOOP_USER_NAME")]
)
def test_who_may_not_write_or_read_is_told_the_variable_that_says_who_they_are(
    place: str, variable: str
) -> None:
    error = PermissionError(errno.EACCES, "denied")
    for found in (
        store_errors.unwritable(place, error, is_local=False),
        store_errors.unreadable(place, error, is_local=False),
    ):
        assert isinstance(found, InputError)
        assert variable in found.remedy


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOTDIR, store_errors.FOLDER_REMEDY),
        (errno.ENAMETOOLONG, store_errors.FOLDER_REMEDY),
        (errno.ELOOP, store_errors.FOLDER_REMEDY),
        (errno.EACCES, "have its rights changed"),
    ],
)
def test_a_folder_that_cannot_be_read_says_whether_its_name_or_its_rights_are_wrong(
    number: int, remedy: str
) -> None:
    found = store_errors.unreadable(FOLDER, OSError(number, "no"), is_local=True)
    assert (type(found), found.remedy) == (InputError, remedy)


def test_an_error_without_a_number_is_described_by_its_first_line() -> None:
    assert store_errors.described(OSError("one\ntwo")) == "one"
