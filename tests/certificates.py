"""Certificates for tests: an authority that vouches for whom a test wants."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

UNENCRYPTED = httpx.create_ssl_context(verify=False)
"""For HTTP clients without TLS that are made many times a second, each of which would make its own."""


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as names of files."""

    certificate: str
    key: str


class Authority:
    """Makes files in ``directory``; ``authority`` is the one with its own certificate."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        path = directory / f"{name}.pem"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self.file = str(path)

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        ends: datetime.timedelta = datetime.timedelta(hours=1),
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + ends)
        )

    def issue(
        self,
        name: str,
        host: str = "127.0.0.1",
        file: str = "",
        password: bytes | None = None,
        servers_only: bool = False,
        ends: datetime.timedelta = datetime.timedelta(hours=1),
    ) -> Issued:
        """A certificate for ``host``, with ``name`` as its subject ("": none), in files called ``file``.

        ``servers_only``: it is not for clients. ``ends``: from now.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        alternative = (
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() or ":" in host else x509.DNSName(host)
        )
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, *([] if servers_only else [ExtendedKeyUsageOID.CLIENT_AUTH])]
        certificate = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else []), key, ends)
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=not name)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        stem = self._directory / (file or name)
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            protection = serialization.BestAvailableEncryption(password)
        issued = Issued(f"{stem}.crt", f"{stem}.key")
        Path(issued.key).write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
        )
        Path(issued.certificate).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return issued
