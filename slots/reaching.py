"""How topom is reached: where it is, and by which certificates. Settings that proxies and migrators have in common."""

import re
from typing import Annotated, Any

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from slots.access import ServerTls
from slots.settings import Settings
from slots.tls import Certificates


class ReachesTopom(Settings):
    """How topom is reached."""

    topom: Annotated[list[str], NoDecode] = Field(
        default=["http://127.0.0.1:8380"],
        min_length=1,
        description="URLs of topom, tried in turn; https:// if it serves TLS. In the environment: separated by commas.",
    )
    topom_tls_ca: str = Field(
        default="",
        description="File with the certificates of the authorities for a topom that serves TLS, in PEM. "
        '"": those that the system trusts.',
    )
    topom_tls_certificate: str = Field(
        default="", description='File with the certificate shown to topom, in PEM. "": none.'
    )
    topom_tls_key: str = Field(default="", description="File with its key, in PEM, without a password.")
    topom_tls_verify_host: bool = Field(
        default=True, description="Whether topom's certificate has to name the host in topom's URL."
    )

    @field_validator("topom", mode="before")
    @classmethod
    def _split_urls(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("topom")
    @classmethod
    def _check_urls(cls, value: list[str]) -> list[str]:
        for url in value:
            if not url.startswith(("http://", "https://")) or not url.partition("://")[2].strip("/"):
                raise ValueError(f"{url!r} is not a URL such as http://127.0.0.1:8380")
        return [url.rstrip("/") for url in value]

    @field_validator("token", check_fields=False)
    @classmethod
    def _check_token(cls, value: SecretStr) -> SecretStr:
        # It is sent in a header. What cannot stand there would be refused with a message that shows it.
        if not re.fullmatch(r"[!-~]*", value.get_secret_value()):
            raise ValueError("a token consists of printable ASCII characters without blanks, on one line")
        return value

    @model_validator(mode="after")
    def _check_certificates(self) -> "ReachesTopom":
        if bool(self.topom_tls_certificate) != bool(self.topom_tls_key):
            raise ValueError("topom_tls_certificate: needs topom_tls_key, and the other way round")
        if (self.topom_tls_ca or self.topom_tls_certificate) and not self._by_tls:
            # Whoever sets these believes that the token goes over the network encrypted.
            raise ValueError("topom: needs URLs with https://, because there are certificates for topom")
        return self

    def topom_certificates(self) -> Certificates | None:
        """The certificates for topom; None if no URL needs any. Raises :class:`slots.tls.TlsError`."""
        tls = ServerTls(self.topom_tls_ca, self.topom_tls_certificate, self.topom_tls_key, self.topom_tls_verify_host)
        return tls.certificates() if self._by_tls else None

    @property
    def _by_tls(self) -> bool:
        return any(url.startswith("https://") for url in self.topom)
