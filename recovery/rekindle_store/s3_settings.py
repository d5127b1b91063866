"""Settings of an S3 server from the environment, as options of the client, or refused by name.

Variables that come out of files and Secrets often end with a line break, which no header may have:
blanks around a value are left out. What cannot be meant is refused here, before anything is sent;
the client itself would panic at some of it. `object_files` calls this, on the driver and in hosts.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from rekindle.model.errors import InputError

SECRET = "AWS_SECRET_ACCESS_KEY"
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", *ENDPOINTS)
# The first that is set counts, as it does for Amazon's own programs.
AUTHORITIES = ("AWS_CA_BUNDLE", "SSL_CERT_FILE")
ENDPOINT = re.compile(r"https?://[^/\s?#]+[^\s?#]*", re.IGNORECASE)
PEM = b"-----BEGIN CERTIFICATE-----"
BYTES_MAX = 16 * 2**20


def options(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the client is to take instead of what it finds in the environment itself.

    Raises InputError for a value that no server can be meant by; a secret's value is not shown.
    """
    found = {}
    for name in (*NAMES, SECRET):
        if name not in environment:
            continue
        value = environment[name].strip()
        _check(name, value)
        if value != environment[name]:
            found[name.lower()] = value
    return found


def authorities(environment: Mapping[str, str] = os.environ) -> bytes | None:
    """Certificates of authorities to trust beside those of the system, in PEM; None for no more.

    Raises InputError for a file that cannot be read, or that has no certificate.
    """
    name = next((name for name in AUTHORITIES if environment.get(name, "").strip()), None)
    if name is None:
        return None
    path = Path(environment[name].strip())
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX)
    except OSError as error:
        _refuse(name, f"names {path}, which cannot be read ({error.strerror})", "a file of PEM")
    if PEM not in content:
        _refuse(name, f"names {path}, which has no certificate", "a file of PEM")
    return content


def _check(name: str, value: str) -> None:
    if not value:
        raise InputError(where=name, what="is set and empty", remedy="give it a value or unset it")
    if name in ENDPOINTS and not ENDPOINT.fullmatch(value):
        _refuse(name, f"is no address of a server ({value!r})", "https://HOST:PORT with its scheme")
    if name == SECRET:
        if any(character < " " for character in value):
            _refuse(name, "has a line break or another control character in it", "the secret alone")
    elif not value.isascii() or not value.isprintable() or " " in value:
        _refuse(name, "has a blank or a character that no header may have", "one word of ASCII")


def _refuse(name: str, what: str, wanted: str) -> NoReturn:
    raise InputError(where=name, what=what, remedy=f"name {wanted} (docs/stores.md)")
