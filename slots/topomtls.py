"""TLS with topom for programs without settings, and sentences for what goes wrong with it.

The job that sizes keys takes certificates from the environment. The command line also has options and contexts for them
(:mod:`slotferry.operator.addressing`). Settings of the other processes are in :mod:`slots.reaching`.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slots.tlswords import Trouble, trouble

if TYPE_CHECKING:
    import ssl

AUTHORITIES, CERTIFICATE, KEY = "SLOTFERRY_TLS_CA", "SLOTFERRY_TLS_CERTIFICATE", "SLOTFERRY_TLS_KEY"
"""Variables with names of files, in PEM."""


@dataclass(frozen=True)
class Files:
    """Certificates for topom. All are names of files in PEM; "" means none.

    Attributes:
        authorities: those that may vouch for topom; "": those that the system trusts.
        certificate, key: shown to a topom that asks for a certificate.
    """

    authorities: str = ""
    certificate: str = ""
    key: str = ""

    def __bool__(self) -> bool:
        """Whether any file is named."""
        return self != NO_FILES

    def over(self, others: "Files") -> "Files":
        """These, and the others where these name none. A certificate and its key come from one place."""
        pair = self if self.certificate or self.key else others
        return Files(self.authorities or others.authorities, pair.certificate, pair.key)

    def context(self) -> "ssl.SSLContext":
        """What a request by TLS needs. Raises :class:`slots.tls.TlsError`: the files cannot be used."""
        # Imported here: a command that asks a topom without TLS starts faster without them.
        from slots.access import ServerTls
        from slots.tls import TlsError

        if bool(self.certificate) != bool(self.key):
            raise TlsError("a certificate that is shown to topom and its key belong together; name both, or none")
        return ServerTls(self.authorities, self.certificate, self.key).certificates().context

    def context_of(self, url: str) -> "ssl.SSLContext | None":
        """What a request to this URL needs; None without TLS. Raises :class:`slots.tls.TlsError`."""
        # What certificates are checked with takes 20 ms to read.
        return self.context() if url.startswith("https://") else None


NO_FILES = Files()


def from_environment() -> Files:
    """The certificates for topom that the environment names."""
    return Files(*(os.environ.get(variable, "") for variable in (AUTHORITIES, CERTIFICATE, KEY)))


def into_environment(files: Files) -> None:
    """Have :func:`from_environment` give these."""
    os.environ.update({AUTHORITIES: files.authorities, CERTIFICATE: files.certificate, KEY: files.key})


@dataclass(frozen=True)
class Remedies:
    """How a program calls its certificates for topom.

    Attributes:
        authorities: of topoms' certificates.
        certificate: the one that is shown to topom, and its key.
    """

    authorities: str
    certificate: str

    def why(self, error: BaseException) -> str:
        """What is wrong with TLS, by an error or by what has led to it, and what to do; "" if it is not TLS."""
        cause: BaseException | None = error
        while cause is not None:
            if found := trouble(str(cause)):
                return _SENTENCES[found].format(authorities=self.authorities, certificate=self.certificate)
            cause = cause.__cause__ or cause.__context__
        return ""

    def unanswered(self, url: str) -> str:
        """What to do about a topom that ends connections to this URL without an answer."""
        if url.startswith(("https:", "wss:")):
            return (
                "if it is topom, it wants to be shown a certificate that an authority of its tls_client_ca has signed "
                f"(name one as {self.certificate}), or serves no TLS (write http:// in its URL)"
            )
        return "if it is topom and serves TLS, write https:// in its URL"


REMEDIES = Remedies(AUTHORITIES, f"{CERTIFICATE} and {KEY}")
"""How programs that have the environment alone call their certificates."""

_SENTENCES = {
    Trouble.OTHER_HOST: "topom's certificate is not for the host in its URL; write a host that it names, or issue one "
    "that names this",
    Trouble.EXPIRED: "topom's certificate has expired; renew it",
    Trouble.TOO_EARLY: "topom's certificate is not valid yet; look at the clocks of both machines",
    Trouble.UNKNOWN_AUTHORITY: "no authority that is trusted here has signed topom's certificate; name the file with "
    "the one that has, as {authorities}",
    Trouble.NO_TLS: "it speaks no TLS; write http:// in its URL, or give that topom a tls_certificate",
    Trouble.CERTIFICATE_WANTED: "topom wants to be shown a certificate; name one as {certificate}",
    Trouble.NOT_TRUSTED: "topom does not take the certificate that is shown to it; name one as {certificate} that an "
    "authority of topom's tls_client_ca has signed",
    Trouble.NOT_TAKEN: "topom does not take the certificate that is shown to it, which has expired or is not for "
    "clients; renew {certificate}",
    Trouble.NOT_FOR_CLIENTS: "topom does not take the certificate that is shown to it, which is not for clients; name "
    "another one as {certificate}",
}
