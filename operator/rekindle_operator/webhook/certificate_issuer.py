"""A certificate for the webhook, or for the store's servers, with an authority of its own.

The authority signs this one certificate, and its key is dropped: what is kept cannot make others.
Keys are of curve P-256. The moment is an argument; chance is the operating system's, as keys need
it. `certificate_store` and the shell call `issue`.
"""

import ipaddress
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from rekindle_operator.webhook.certificate_rotation import Issued, Pair

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
