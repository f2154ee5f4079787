"""How topom is reached: where it is, and by which certificates. Settings that proxies and migrators have in common."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from slots import bearer
from slots.access import ServerAccess, ServerTls, look, of_files
from slots.reloading import refusing
from slots.settings import Live, Settings
from slots.tls import Certificates


class ReachesTopom(Settings):
    """How topom is reached."""

    topom: Annotated[list[str], NoDecode] = Field(
        default=["http://127.0.0.1:8380"],
        min_length=1,
        description="URLs of topom, tried in turn; https:// if it serves TLS. In the environment: separated by commas.",
    )
    topom_tls_ca: Live[str] = Field(
        default="",
        description="File with the certificates of the authorities for a topom that serves TLS, in PEM. "
        '"": those that the system trusts. Live.',
    )
    topom_tls_certificate: Live[str] = Field(
        default="", description='File with the certificate shown to topom, in PEM. "": none. Live.'
    )
    topom_tls_key: Live[str] = Field(default="", description="File with its key, in PEM, without a password. Live.")
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
        bearer.check(value.get_secret_value())
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
        return ServerTls.of(self, "topom_tls").certificates() if self._by_tls else None

    def bound(self) -> dict[str, object]:
        """The certificates for topom go with whether there is a URL with TLS."""
        return of_files("topom_tls", self._by_tls)

    @property
    def _by_tls(self) -> bool:
        return any(url.startswith("https://") for url in self.topom)


def look_at_certificates(
    access: ServerAccess, to_topom: Certificates | None, settings: ReachesTopom
) -> Callable[[], None]:
    """A look at other certificates for the Redis servers and for topom (:data:`slots.reloading.Taker`)."""
    with refusing("TLS with the Redis servers"):
        use_for_servers = access.look(ServerTls.of(settings, "redis_tls"))
    with refusing("TLS with topom"):
        use_for_topom = look(to_topom, ServerTls.of(settings, "topom_tls"))

    def put() -> None:
        use_for_servers()
        use_for_topom()

    return put
