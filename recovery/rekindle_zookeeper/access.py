"""The secret that opens the coordination store, and who may read and write what is made with it.

ZooKeeper gets it over a connection that is not encrypted, and keeps a digest of it. It comes from
a file: arguments and environments can be read by others.
"""

from pathlib import Path
from typing import NoReturn

from kazoo.security import ACL, make_digest_acl

from rekindle.errors import InputError

__all__ = ["USER", "credentials", "permissions", "read_secret"]

USER = "rekindle"
SECRET_LENGTH_MAX = 1_000


def read_secret(file: Path) -> str:
    """The secret in a file, without white space around it; InputError when there is none."""
    try:
        with file.open("rb") as opened:
            secret = opened.read(SECRET_LENGTH_MAX + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else "is no ASCII"
        _refuse(file, what)
    if not secret or len(secret) > SECRET_LENGTH_MAX or not secret.isprintable():
        _refuse(file, "holds no secret")
    return secret


def credentials(secret: str | None) -> list[tuple[str, str]]:
    """What a session shows."""
    return [] if secret is None else [("digest", f"{USER}:{secret}")]


def permissions(secret: str | None) -> list[ACL] | None:
    """Of all that is made: everything for who knows the secret, nothing for others; without a
    secret, open."""
    return None if secret is None else [make_digest_acl(USER, secret, all=True)]


def _refuse(file: Path, what: str) -> NoReturn:
    raise InputError(
        where=f"secret file {file}",
        what=what,
        remedy=f"give a file with one line of 1 to {SECRET_LENGTH_MAX} printable ASCII characters",
    )
