"""Credentials of the coordination store, and the rights that records are made with.

    shared      one line of ASCII, `rekindle`: all rights on all that is made with it
    namespace   made by the operator from its own: the rights of `acl` in one namespace

ZooKeeper keeps a digest of a credential. It comes from a file: arguments and environments can be
read by others. The file of a namespace's credential also holds the operator's digest, which a
sidecar needs to give the operator its rights on the records that it makes.
"""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from kazoo.security import ACL, ANYONE_ID_UNSAFE, Permissions, make_acl, make_digest_acl_credential

from rekindle.model.errors import InputError
from rekindle.protocol import store_paths

USER = "rekindle"
SECRET_LENGTH_MAX = 1_000
# Whoever has a namespace's credential may try secrets offline, so it must not be a word.
SECRET_LENGTH_MIN = 20
FORM = "rekindle-credential-1"
ALL = Permissions.ALL
OWN = Permissions.READ | Permissions.WRITE | Permissions.CREATE | Permissions.DELETE


@dataclass(frozen=True, slots=True)
class Credential:
    """What a session shows. `operator` is the operator's digest, "" in the shared credential."""

    user: str
    password: str = field(repr=False)
    operator: str = ""

    @property
    def shown(self) -> tuple[str, str]:
        """Scheme and credential, as ZooKeeper takes them."""
        return "digest", f"{self.user}:{self.password}"

    @property
    def digest(self) -> str:
        """What stands in an ACL: it lets nobody in."""
        made: str = make_digest_acl_credential(self.user, self.password)
        return made

    @property
    def acl(self) -> list[ACL]:
        """Of a record that is made with it, where nothing else is said."""
        if not self.operator:
            return [rights(self.digest, ALL)]
        return [rights(self.operator, ALL), rights(self.digest, OWN)]


def rights(digest: str, permissions: int) -> ACL:
    """One entry of an ACL."""
    made: ACL = make_acl(
        "digest",
        digest,
        read=bool(permissions & Permissions.READ),
        write=bool(permissions & Permissions.WRITE),
        create=bool(permissions & Permissions.CREATE),
        delete=bool(permissions & Permissions.DELETE),
        admin=bool(permissions & Permissions.ADMIN),
    )
    return made


class Access:
    """The credential of a connection; `reread` gives the one that its file has now."""

    def __init__(
        self, credential: Credential | None, reread: Callable[[], Credential] | None = None
    ) -> None:
        self.credential = credential
        self._reread = reread

    @classmethod
    def of(cls, secret: str | None, file: Path | None) -> "Access":
        """By a text, or by a file that may get another one later. Raises InputError."""
        if file is not None:
            return cls(_read(file), lambda: _read(file))
        return cls(None if secret is None else from_text(secret))

    def renew(self) -> Credential | None:
        """The credential when its file has another one by now; else None, also where the file
        cannot be read."""
        if self._reread is None:
            return None
        try:
            found = self._reread()
        except InputError:
            return None
        if found == self.credential:
            return None
        self.credential = found
        return found


def derive(secret: str, namespace: str, identity: str, generation: int) -> Credential:
    """The credential of a namespace, by the operator's secret, always the same: nobody keeps it.

    `identity` is the namespace's UID, so that one that is made again under the name has another
    one; so has each `generation`. Raises InputError for a secret that is too short.
    """
    if len(secret) < SECRET_LENGTH_MIN:
        raise InputError(
            where="the store's secret",
            what=f"has {len(secret)} characters, and namespaces get credentials made from it",
            remedy=f"give one of at least {SECRET_LENGTH_MIN} random characters",
        )
    message = f"rekindle namespace credential\n{generation}\n{identity}\n{namespace}"
    password = hmac.new(secret.encode(), message.encode(), hashlib.sha256).hexdigest()
    return Credential(f"namespace/{namespace}", password, Credential(USER, secret).digest)


def to_text(credential: Credential) -> str:
    """A namespace's credential as its Secret has it."""
    return f"{FORM} {credential.user} {credential.password} {credential.operator}"


def from_text(text: str) -> Credential:
    """The credential of a text: a namespace's, or the shared one."""
    words = text.split(" ")
    if len(words) == 4 and words[0] == FORM:
        return Credential(*words[1:])
    return Credential(USER, text)


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


def _read(file: Path) -> Credential:
    return from_text(read_secret(file))


def _refuse(file: Path, what: str) -> NoReturn:
    raise InputError(
        where=f"secret file {file}",
        what=what,
        remedy=f"give a file with one line of 1 to {SECRET_LENGTH_MAX} printable ASCII characters",
    )


# Rights of a namespace on each record below `/rekindle/v1`; the operator may do everything.
#
#     record                            the namespace may
#     NAMESPACE                         read
#     NAMESPACE/APPLICATION             read, make and remove what is in it
#       coordination, orders            read
#       directives                      read, and remove what is in it
#       directives/NUMBER, any guard    read
#       acks, pieces                    read, make and remove what is in it
#       everything else                 read, write
#
# To make and to remove a record are rights on its parent. So that an application's folder may be
# its namespace's, and the records in it that only the operator writes may not be removed and made
# again, these have a record below them, the *guard*: ZooKeeper removes no record that has one,
# and the namespace may not remove a guard. Pure; `namespaces` applies it.

# A namespace may remove directives, and so a guard among them, were there not one below that.
GUARDS = (
    (store_paths.COORDINATION, store_paths.GUARD),
    (store_paths.ORDERS, store_paths.GUARD),
    (store_paths.DIRECTIVES, store_paths.GUARD, store_paths.GUARD),
)
READ: int = Permissions.READ
DELETE: int = Permissions.DELETE
MAKE: int = READ | DELETE | Permissions.CREATE
WRITE: int = READ | Permissions.WRITE


def granted(*names: str) -> int:
    """The rights of a namespace on a record: its namespace's name, and what follows in its path."""
    match names[1:]:
        case [] | [_, store_paths.COORDINATION | store_paths.ORDERS, *_]:
            return READ
        case [_] | [_, store_paths.ACKS | store_paths.PIECES]:
            return MAKE
        case [_, store_paths.DIRECTIVES]:
            return READ | DELETE
        case [_, store_paths.DIRECTIVES, *_]:
            return READ
        case _:
            return WRITE


def namespace_of(path: str) -> str:
    """The namespace that a record belongs to; "" for one of none."""
    below = path.removeprefix(f"{store_paths.APPLICATIONS}/")
    return "" if below == path else below.partition("/")[0]


def acl(path: str, operator: str, namespace: str) -> list[ACL]:
    """Who may do what with a record of the store, by the digests of the operator and of the
    record's namespace, "" for none. Everybody may see whether somebody leads."""
    entries = [rights(operator, ALL)]
    if path == store_paths.ELECTION:
        entries.append(ACL(Permissions.READ, ANYONE_ID_UNSAFE))
    if namespace and namespace_of(path):
        names = path.removeprefix(f"{store_paths.APPLICATIONS}/").split("/")
        entries.append(rights(namespace, granted(*names)))
    return entries
