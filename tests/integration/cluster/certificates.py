"""The certificates of a cluster whose topoms serve TLS."""

import ssl
from pathlib import Path
from typing import Any

from slots.access import ServerTls
from slots.topomtls import AUTHORITIES, CERTIFICATE, KEY
from tests.certificates import Authority, Issued


class Certificates:
    """Those of a cluster: one authority for topoms and their clients, and one that nobody knows."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.stranger = Authority(folder, "stranger")
        self.topom = self.authority.issue("topom")
        self.client = self.authority.issue("client")

    def of_topom(self, asked: str) -> dict[str, Any]:
        """Settings of a topom."""
        mutual = {"tls_client_ca": self.authority.file} if asked != "none" else {}
        return {
            "tls_certificate": self.topom.certificate,
            "tls_key": self.topom.key,
            "tls_ca": self.authority.file,
            "tls_client_certificates": asked,
            **mutual,
        }

    def of_proxy(self, asked: str) -> dict[str, Any]:
        """Settings of a proxy."""
        shown = {"topom_tls_certificate": self.client.certificate, "topom_tls_key": self.client.key}
        return {"topom_tls_ca": self.authority.file, **(shown if asked != "none" else {})}

    def of_command_line(self, asked: str) -> dict[str, str]:
        """The environment of a command."""
        shown = {CERTIFICATE: self.client.certificate, KEY: self.client.key} if asked == "all" else {}
        return {AUTHORITIES: self.authority.file, **shown}

    def context(self, shown: Issued | None) -> ssl.SSLContext:
        """A client's."""
        tls = ServerTls(self.authority.file, *((shown.certificate, shown.key) if shown is not None else ()))
        return tls.certificates().context
