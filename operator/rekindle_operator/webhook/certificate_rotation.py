"""Which certificate the webhook presents, and when another one takes its place.

    nothing usable ──Issue──► current ──two thirds of its life──Stage──► current + staged
          ▲                      ▲                                             │
          └──────its end─────────┴───────Promote, once the API server─────────┘
                                         trusts the staged one's authority

Each certificate has an authority of its own, whose key is thrown away once it has signed it: nobody
can make another one. An authority is trusted from before its certificate is presented until that
certificate ends, for a replica that reads nothing any more may present it until then. So at every
moment each replica presents a certificate that the API server trusts.

All is kept in one Secret. What is to be done follows from it and the moment; `certificate_store`
does it.
"""

import base64
import binascii
import ipaddress
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from rekindle_operator.cluster.json_access import mapping, text
from rekindle_operator.webhook.injection_spec import Body

RENEWED_AT = 2 / 3
RETIRED_MAX = 4
CURRENT, STAGED = ("tls.crt", "tls.key", "ca.crt"), ("next.crt", "next.key", "next-ca.crt")
RETIRED = "previous-ca.crt"
END = b"-----END CERTIFICATE-----\n"


@dataclass(frozen=True, slots=True)
class Pair:
    """What a server presents, in PEM: the certificate with its chain, and the private key."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its authority, and the names that it is for. Moments have a time zone."""

    pair: Pair
    authority: bytes
    hosts: frozenset[str]
    starts: datetime
    ends: datetime

    @property
    def renewed_at(self) -> datetime:
        """When another one is due."""
        return self.starts + (self.ends - self.starts) * RENEWED_AT


@dataclass(frozen=True, slots=True)
class StoredCertificates:
    """What the Secret holds. `retired` are authorities whose certificates are presented no more,
    the newest first."""

    current: Issued | None = None
    staged: Issued | None = None
    retired: tuple[bytes, ...] = ()


class RotationStep(StrEnum):
    """What is to be done with what is kept."""

    KEEP = "keep"
    ISSUE = "issue"
    STAGE = "stage"
    PROMOTE = "promote"


def decide(
    kept: StoredCertificates,
    hosts: Collection[str],
    now: datetime,
    *,
    trusted_since: datetime | None,
    settle_seconds: float,
) -> RotationStep:
    """The next step. `trusted_since`: since when the API server has been seen to trust the staged
    certificate's authority. It takes a while until each of its replicas knows, hence
    `settle_seconds`."""
    if kept.current is None or not is_usable(kept.current, hosts, now):
        staged = kept.staged is not None and is_usable(kept.staged, hosts, now)
        return RotationStep.PROMOTE if staged else RotationStep.ISSUE
    if kept.staged is None or not is_usable(kept.staged, hosts, now):
        return RotationStep.STAGE if now >= kept.current.renewed_at else RotationStep.KEEP
    settled = trusted_since is not None and now - trusted_since >= timedelta(seconds=settle_seconds)
    return RotationStep.PROMOTE if settled else RotationStep.KEEP


def is_usable(issued: Issued, hosts: Collection[str], now: datetime) -> bool:
    """Whether a certificate can be presented under these names."""
    return issued.starts <= now < issued.ends and issued.hosts.issuperset(hosts)


def followed(
    kept: StoredCertificates, step: RotationStep, new: Issued | None = None
) -> StoredCertificates:
    """What is kept after a step; `new` is the certificate that ISSUE and STAGE need."""
    match step:
        case RotationStep.ISSUE:
            return StoredCertificates(new, None, _retire(kept))
        case RotationStep.STAGE:
            return replace(kept, staged=new)
        case RotationStep.PROMOTE:
            return StoredCertificates(kept.staged, None, _retire(kept))
    return kept


def trusted(kept: StoredCertificates, now: datetime) -> bytes:
    """The authorities that the API server is to trust, in PEM, in a fixed order."""
    issued = (kept.current, kept.staged)
    found = [item.authority for item in issued if item is not None]
    found += [authority for authority in kept.retired if _ends(authority) > now]
    return b"".join(sorted(set(found)))


def ends_of(pair: Pair) -> datetime | None:
    """When what is presented ends; None for what is no certificate."""
    read = _certificate(pair.certificate)
    return None if read is None else read.not_valid_after_utc


def from_secret(secret: Body | None) -> StoredCertificates:
    """What a Secret holds; nothing of it where it cannot be read."""
    data = mapping(secret, "data")
    retired = _decoded(data, RETIRED).split(END)
    return StoredCertificates(
        current=_issued(*(_decoded(data, name) for name in CURRENT)),
        staged=_issued(*(_decoded(data, name) for name in STAGED)),
        retired=tuple(item + END for item in retired if _certificate(item + END) is not None),
    )


def to_secret(
    kept: StoredCertificates, name: str, namespace: str, known: Body | None
) -> dict[str, Any]:
    """The Secret that holds it, in the place of the one that is known."""
    data = dict(_data(kept))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": text(known, "type") or "kubernetes.io/tls",
        "metadata": {**mapping(known, "metadata"), "name": name, "namespace": namespace},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def _data(kept: StoredCertificates) -> Iterator[tuple[str, bytes]]:
    for names, issued in ((CURRENT, kept.current), (STAGED, kept.staged)):
        if issued is not None:
            values = (issued.pair.certificate, issued.pair.key, issued.authority)
            yield from zip(names, values, strict=True)
    if kept.retired:
        yield RETIRED, b"".join(kept.retired)


def _retire(kept: StoredCertificates) -> tuple[bytes, ...]:
    old = () if kept.current is None else (kept.current.authority,)
    return (*old, *kept.retired)[:RETIRED_MAX]


def _issued(certificate: bytes, key: bytes, authority: bytes) -> Issued | None:
    read, signer = _certificate(certificate), _certificate(authority)
    if read is None or signer is None or not _belongs(read, key):
        return None
    try:
        read.verify_directly_issued_by(signer)
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except BaseException:  # signatures and extensions fail in many ways, and all mean the same
        return None
    hosts = {*names.get_values_for_type(x509.DNSName)}
    hosts |= {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    ends = min(read.not_valid_after_utc, signer.not_valid_after_utc)
    starts = max(read.not_valid_before_utc, signer.not_valid_before_utc)
    return Issued(Pair(certificate, key), authority, frozenset(hosts), starts, ends)


def _belongs(certificate: x509.Certificate, key: bytes) -> bool:
    """Whether this is the certificate's private key."""
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        public = load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError):
        return False
    return public.public_bytes(*form) == certificate.public_key().public_bytes(*form)


def _certificate(pem: bytes) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        return None


def _ends(authority: bytes) -> datetime:
    return x509.load_pem_x509_certificate(authority).not_valid_after_utc


def _decoded(data: Mapping[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(text(data, name), validate=True)
    except (ValueError, binascii.Error):
        return b""


# A certificate for the webhook, or for the store's servers, with an authority of its own.
#
# The authority signs this one certificate, and its key is dropped: what is kept cannot make
# others. Keys are of curve P-256. The moment is an argument; chance is the operating system's, as
# keys need it. `certificate_store` and the shell call `issue`.

LIFE = timedelta(days=90)
# Clocks of nodes may be behind the one of its maker.
BACKDATED = timedelta(hours=1)
SERVER = (ExtendedKeyUsageOID.SERVER_AUTH,)
# Of servers that call each other with the same certificate.
PEER = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)

_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def issue(
    hosts: Collection[str],
    now: datetime,
    life: timedelta = LIFE,
    *,
    of: str = "webhook",
    usages: Sequence[ObjectIdentifier] = SERVER,
) -> Issued:
    """A certificate for a server under these names or addresses, valid from `now` on for `life`
    in all. Whole seconds count. The authority's name says what it is `of`."""
    starts = now.replace(microsecond=0) - BACKDATED
    ends = starts + life
    signer_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    signer_name = _name(f"rekindle-{of}-authority-{starts:%Y%m%dT%H%M%SZ}")
    signer = _signed(
        _builder(signer_name, signer_name, signer_key, starts, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True),
        signer_key,
    )
    certificate = _signed(
        _builder(_name(min(hosts)), signer_name, key, starts, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage([*usages]), critical=False)
        .add_extension(x509.SubjectAlternativeName([*map(_alternative, hosts)]), critical=False),
        signer_key,
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pair = Pair(certificate.public_bytes(Encoding.PEM), private)
    return Issued(pair, signer.public_bytes(Encoding.PEM), frozenset(hosts), starts, ends)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    starts: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(ends)
        .add_extension(identity, critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder,
    signer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    whose = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key())
    return builder.add_extension(whose, critical=False).sign(signer_key, hashes.SHA256())


def _usage(*names: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in names for usage in _USAGES})


def _name(text: str) -> x509.Name:
    """A common name has 64 characters at most; nobody looks at it."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
