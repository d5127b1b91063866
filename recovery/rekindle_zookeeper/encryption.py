"""TLS to the servers of the store: whom it trusts, each socket, and why a handshake failed.

    authorities ──read again for each connection──► handshake ──► socket
                                                        └───────► trouble, until one succeeds

Only the given authorities count, not those of the system, and a server's certificate has to be for
the name by which it is called. Clients show no certificate: their credential says who they are. A
connection goes on for as long as it lasts, whatever is renewed meanwhile. `sessions` and the
operator's questions to single servers call `Encryption.connect`.

Why: docs/decisions/0004-transport-encryption-of-the-store.md.
"""

import logging
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rekindle.model.errors import InputError

FILE_BYTES_MAX = 1_000_000
LOG = logging.getLogger("rekindle_zookeeper")

# OpenSSL's numbers for what is wrong with a certificate (x509_vfy.h).
EXPIRED, NOT_YET_VALID = 10, 9
OTHER_NAME = (62, 64)  # of a host, of an address
UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why no server could be trusted: what is wrong at which server, and what to do."""

    what: str
    remedy: str


class Encryption:
    """`authorities` gives PEM text and is asked for each connection, so that renewed ones count
    from the next one on; `where` names its place in messages. It may raise InputError. Calls may
    come from several threads."""

    def __init__(self, authorities: Callable[[], str], where: str) -> None:
        self._authorities = authorities
        self._where = where
        self._troubles: dict[str, Trouble] = {}
        self._checked: str | None = None

    @classmethod
    def of(cls, file: Path | None) -> Self | None:
        """By a file, which may change later; None without one.

        Raises InputError for a file without a certificate, or only with such as have ended.
        """
        if file is None:
            return None
        where = f"CA file {file}"
        made = cls(lambda: _read(file), where)
        _check_ends(made._context(), where)
        return made

    @property
    def trouble(self) -> Trouble | None:
        """What keeps some server from being trusted now; None where nothing is known to."""
        found = [*self._troubles.values()]
        return found[0] if found else None

    def authorities(self) -> str:
        """Those that count now, in PEM. Raises InputError where there are none."""
        found = self._authorities()
        if found != self._checked:
            self._context_of(found)
            self._checked = found
        return found

    def connect(
        self, address: tuple[str, int], hostname: str, timeout_seconds: float
    ) -> ssl.SSLSocket:
        """A socket to a server that has proved to be `hostname`. Raises OSError."""
        server = f"{hostname}:{address[1]}"
        try:
            plain = socket.create_connection(address, timeout_seconds)
        except OSError:
            self._troubles.pop(server, None)  # what is not there proves nothing
            raise
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A dot at the end keeps search domains off a name; certificates have none.
            wrapped = self._context().wrap_socket(plain, server_hostname=hostname.rstrip("."))
        except (OSError, InputError) as error:
            plain.close()
            self._note(server, self._trouble_of(error, server))
            raise ConnectionError(str(error)) from error
        self._troubles.pop(server, None)
        return wrapped

    def _context(self) -> ssl.SSLContext:
        return self._context_of(self._authorities())

    def _context_of(self, authorities: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Whatever the file has is trusted by itself, an authority under another one too.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=authorities)
        except (ssl.SSLError, ValueError) as error:
            raise InputError(
                where=self._where,
                what="holds no certificate that can be read",
                remedy="give the authorities of the servers' certificates in PEM, one or several",
            ) from error
        return context

    def _trouble_of(self, error: Exception, server: str) -> Trouble:
        if isinstance(error, InputError):
            return Trouble(f"{error.where} {error.what}", error.remedy)
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._distrusted(error, server)
        if isinstance(error, ssl.SSLError | ConnectionError):
            return Trouble(
                f"{server} ends the TLS handshake",
                "name the port on which the servers serve TLS, and see that they have a "
                "certificate; without TLS, leave the CA file out",
            )
        return Trouble(
            f"{server} does not finish the TLS handshake",
            "name the port on which the servers serve TLS, and see whether they are overloaded",
        )

    def _distrusted(self, error: ssl.SSLCertVerificationError, server: str) -> Trouble:
        code = error.verify_code
        if code == EXPIRED:
            return Trouble(
                f"the certificate of {server}, or its authority, has expired",
                "renew it, and see that the clock of this machine is right",
            )
        if code == NOT_YET_VALID:
            return Trouble(
                f"the certificate of {server} is not valid yet",
                "see that the clocks of this machine and of whoever made it are right",
            )
        if code in OTHER_NAME:
            return Trouble(
                f"the certificate of {server} is for another name",
                "call the servers by the names in their certificate, or have it made for these",
            )
        if code in UNKNOWN_AUTHORITY:
            return Trouble(
                f"the certificate of {server} is of no authority in {self._where}",
                "give the authority that has signed the servers' certificates",
            )
        return Trouble(
            f"the certificate of {server} cannot be trusted ({error.verify_message})",
            "give the servers another certificate",
        )

    def _note(self, server: str, trouble: Trouble) -> None:
        if self._troubles.get(server) != trouble:
            LOG.warning("no TLS to the store: %s; %s", trouble.what, trouble.remedy)
        self._troubles[server] = trouble


def open_socket(
    address: tuple[str, int], encryption: Encryption | None, timeout_seconds: float
) -> socket.socket:
    """A connection to one server, with TLS or without. Raises OSError."""
    if encryption is None:
        return socket.create_connection(address, timeout_seconds)
    return encryption.connect(address, address[0], timeout_seconds)


def speaks_tls(address: tuple[str, int], timeout_seconds: float) -> bool:
    """Whether a server answers as TLS does, with whatever certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, timeout_seconds) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except OSError:
        return False


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(FILE_BYTES_MAX).decode("ascii")
    except UnicodeDecodeError:
        return ""  # no PEM, as `_context_of` says
    except OSError as error:
        raise InputError(
            where=f"CA file {file}",
            what=f"cannot be read ({error.strerror})",
            remedy="give a file with the authorities of the servers' certificates in PEM",
        ) from error


def _check_ends(context: ssl.SSLContext, where: str) -> None:
    """InputError where all authorities have ended."""
    ends = [ssl.cert_time_to_seconds(str(item["notAfter"])) for item in context.get_ca_certs()]
    if ends and max(ends) < time.time():
        raise InputError(
            where=where,
            what="holds only certificates that have expired",
            remedy="give the authorities that have signed the servers' present certificates",
        )
