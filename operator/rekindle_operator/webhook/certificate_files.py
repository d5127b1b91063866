"""The webhook's certificate in a folder, where somebody else puts it, and renews it.

cert-manager keeps it in a Secret that is mounted there: `tls.crt` and `tls.key`, both replaced in
one step by a link, so they are read through one opened folder. Says nothing of authorities: whoever
makes the certificate sees to `caBundle` as well. `webhook_server` calls `read` every few seconds.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle_operator.webhook.certificate_rotation import Pair

__all__ = ["Folder"]

CERTIFICATE, KEY = "tls.crt", "tls.key"
BYTES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with a certificate."""

    path: Path

    def read(self) -> Pair:
        """What lies there now; InputError where it cannot be read."""
        try:
            return self._read()
        except OSError as error:
            raise InputError(
                where=f"--certificates-folder {self.path}",
                what=f"{error.filename or 'it'} cannot be read ({error.strerror})",
                remedy=f"mount a folder with {CERTIFICATE} and {KEY} there",
            ) from error

    def _read(self) -> Pair:
        # A mounted Secret is a folder of links into `..data`, itself a link that is replaced.
        inner = self.path / "..data"
        opened = os.open(inner if inner.exists() else self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return Pair(_content(CERTIFICATE, opened), _content(KEY, opened))
        finally:
            os.close(opened)


def _content(name: str, folder: int) -> bytes:
    file = os.open(name, os.O_RDONLY, dir_fd=folder)
    with os.fdopen(file, "rb") as opened:
        return opened.read(BYTES_MAX)
