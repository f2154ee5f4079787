"""What OpenSSL's words for a failed connection by TLS mean: said in one place, for servers of all kinds."""

from enum import Enum, auto


class Trouble(Enum):
    """What is wrong with TLS, seen from the client."""

    OTHER_HOST = auto()
    """The server's certificate is for another host."""
    EXPIRED = auto()
    """The server's certificate has expired."""
    TOO_EARLY = auto()
    """The server's certificate is not valid yet."""
    UNKNOWN_AUTHORITY = auto()
    """No authority that is trusted here has signed the server's certificate."""
    NO_TLS = auto()
    """The server speaks no TLS."""
    CERTIFICATE_WANTED = auto()
    """The server wants to be shown a certificate."""
    NOT_TRUSTED = auto()
    """An authority that the server does not know has signed the certificate that is shown to it."""
    NOT_TAKEN = auto()
    """The certificate that is shown to the server has expired, or is not for clients."""
    NOT_FOR_CLIENTS = auto()
    """The certificate that is shown to the server is not for clients."""


_SIGNS = (
    ("mismatch, certificate is not valid", Trouble.OTHER_HOST),
    ("certificate has expired", Trouble.EXPIRED),
    ("certificate is not yet valid", Trouble.TOO_EARLY),
    ("certificate_verify_failed", Trouble.UNKNOWN_AUTHORITY),
    ("wrong_version_number", Trouble.NO_TLS),
    ("record layer failure", Trouble.NO_TLS),
    ("certificate_required", Trouble.CERTIFICATE_WANTED),
    ("alert_unknown_ca", Trouble.NOT_TRUSTED),
    ("alert_certificate", Trouble.NOT_TAKEN),
    ("unsupported_certificate", Trouble.NOT_FOR_CLIENTS),
)
"""What an error's text has, in small letters. The first one counts."""


def trouble(said: str) -> Trouble | None:
    """What an error's text means; None if it is not known to be about TLS."""
    said = said.lower()
    return next((found for sign, found in _SIGNS if sign in said), None)
