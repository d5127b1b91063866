"""A certificate authority of the test control plane, for servers and for users.

The `openssl` program makes keys and certificates: no library of the project can, and every machine
with Kubernetes has it. Certificates hold for 30 days and nobody renews them. control_plane.py makes
one authority each time it starts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testbed import program_runs

DAYS = "30"
SECONDS_MAX = 60.0
# Nothing from the machine's own configuration: it may add extensions that contradict ours.
_CONFIGURATION = "[req]\ndistinguished_name = name\n[name]\n"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True, slots=True)
class TestCertificate:
    """Files in PEM: the certificate, and its private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """Issues certificates into `directory`, each under a name of its own."""

    directory: Path

    @classmethod
    def make(cls, directory: Path) -> Self:
        """A new authority. Raises `InputError` where `openssl` is not installed."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = cls(directory)
        authority._configuration.write_text(_CONFIGURATION)
        usage = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
        authority._request(authority._files("authority"), "/CN=testbed", usage)
        return authority

    @property
    def certificate(self) -> Path:
        """The authority's own certificate, by which the others are checked."""
        return self._files("authority").certificate

    def issue(
        self, name: str, *, user: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> TestCertificate:
        """A certificate for `user`, a member of `groups`, or for a server at `hosts`.

        Hosts are addresses or names. Raises `RunError` when `openssl` refuses.
        """
        files = self._files(name)
        organisations = "".join(f"/O={_escape(group)}" for group in groups)
        extensions = [
            "basicConstraints=critical,CA:FALSE",
            "keyUsage=critical,digitalSignature",
            "extendedKeyUsage=serverAuth,clientAuth",
        ]
        if hosts:
            extensions.append(f"subjectAltName={','.join(map(_alternative, hosts))}")
        own = self._files("authority")
        signed = ("-CA", str(own.certificate), "-CAkey", str(own.key))
        self._request(files, f"{organisations}/CN={_escape(user)}", extensions, *signed)
        return files

    @property
    def _configuration(self) -> Path:
        return self.directory / "openssl.cnf"

    def _files(self, name: str) -> TestCertificate:
        return TestCertificate(self.directory / f"{name}.crt", self.directory / f"{name}.key")

    def _request(
        self, files: TestCertificate, subject: str, extensions: Sequence[str], *signed: str
    ) -> None:
        added = [part for extension in extensions for part in ("-addext", extension)]
        _run(
            *("req", "-x509", "-config", str(self._configuration), *_KEY, "-days", DAYS),
            *("-subj", subject, *added, *signed),
            *("-keyout", str(files.key), "-out", str(files.certificate)),
        )


def make_signing_keys(directory: Path) -> tuple[Path, Path]:
    """The private and the public key by which tokens of service accounts are signed."""
    private, public = directory / "tokens.key", directory / "tokens.pub"
    curve = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    _run("genpkey", *curve, "-out", str(private))
    _run("pkey", "-in", str(private), "-pubout", "-out", str(public))
    return private, public


def find_openssl() -> str:
    """The path of the program that makes certificates. Raises `InputError` where it is missing."""
    return program_runs.find(
        "openssl",
        where="the test control plane",
        what="needs the program openssl for its certificates",
        remedy="install it (on Debian `apt-get install openssl`)",
    )


def _run(*arguments: str) -> None:
    program_runs.run(
        [find_openssl(), *arguments],
        where=f"openssl {arguments[0]}",
        remedy="see whether this is OpenSSL 3 and the directory can be written",
        seconds_max=SECONDS_MAX,
    )


def _escape(text: str) -> str:
    return re.sub(r"([/\\+=])", r"\\\1", text)


def _alternative(host: str) -> str:
    return f"{'IP' if re.fullmatch(r'[0-9.]+|[0-9a-f:]*:[0-9a-f:]*', host) else 'DNS'}:{host}"
