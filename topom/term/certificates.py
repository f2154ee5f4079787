"""The certificates by which topom is served and reaches the other topoms, and what its own migrator shows it.

A topom that wants to be shown certificates is a client of itself: it looks at its own URL, and its migrator has a
stream. So it takes no certificate of its own that it would refuse to be shown: it does not start with one, and does not
go over to one.
"""

import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from slots.access import ServerTls
from slots.reloading import refusing
from slots.tls import Certificates, ClientCertificates, TlsError, client_context, server_context
from slots.topomtls import Remedies
from topom.term.settings import TopomSettings

REMEDIES = Remedies("tls_ca", "tls_certificate and tls_key")
"""How topom calls its certificates for the other topoms."""
_ASKED: dict[str, ClientCertificates] = {"none": "none", "streams": "optional", "all": "required"}
_FLIGHTS = 8
"""More than a handshake has."""


def served(settings: TopomSettings) -> Certificates | None:
    """The certificates by which the API is served; None without TLS. Raises :class:`slots.tls.TlsError`."""
    if not settings.tls_certificate:
        return None
    return Certificates(_files(settings), partial(_context, settings))


def look_at_served(known: Certificates | None, settings: TopomSettings) -> Callable[[], None]:
    """A look at other files by which the API is served (:data:`slots.reloading.Taker`)."""
    if known is None:
        return lambda: None
    with refusing("TLS of the API"):
        return known.look(_files(settings), partial(_context, settings))


def of_topoms(settings: TopomSettings) -> ServerTls:
    """The certificates for requests to other topoms."""
    return ServerTls(settings.tls_ca, settings.tls_certificate, settings.tls_key)


def of_own_migrator(settings: TopomSettings) -> dict[str, Any]:
    """Settings of the migrator that this topom starts itself, which comes by a loopback address.

    It trusts what is in the file of topom's certificate, for any host, and shows that certificate.
    """
    if not settings.tls_certificate:
        return {}
    return {
        "topom_tls_ca": settings.tls_certificate,
        "topom_tls_certificate": settings.tls_certificate,
        "topom_tls_key": settings.tls_key,
        "topom_tls_verify_host": False,
    }


def _files(settings: TopomSettings) -> tuple[str, str, str]:
    return settings.tls_certificate, settings.tls_key, settings.tls_client_ca


def _context(settings: TopomSettings) -> ssl.SSLContext:
    certificate, key, authorities = _files(settings)
    asked = _ASKED[settings.tls_client_certificates]
    context = server_context(certificate, key, authorities, asked)
    if asked != "none" and (reason := _disagreement(context, client_context(certificate, certificate, key, False))):
        raise TlsError(
            f"topom shows the certificate in {certificate} to other topoms and to itself, and would refuse it: "
            f"{reason}; have an authority of {authorities} sign it, for servers and for clients (clientAuth)"
        )
    return context


def _disagreement(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Why a handshake of these two fails; "" if it does not."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(_FLIGHTS):
        for side in sides:
            try:
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            except ssl.SSLError as error:
                return str(error)
    return ""
