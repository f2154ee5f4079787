"""The settings of a migrator; ``configs/migrator.toml`` has them with their defaults."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from slots.access import ServerAccess, ServerTls, of_files
from slots.messages.message import Word
from slots.reaching import ReachesTopom
from slots.settings import Live


class MigratorSettings(ReachesTopom):
    """All settings of a migrator."""

    model_config = SettingsConfigDict(env_prefix="SLOTFERRY_MIGRATOR_")

    token: Live[SecretStr] = Field(
        default=SecretStr(""),
        description="The bearer token for topom, of the role migrator. Live.",
    )
    spool: Path = Field(
        default=Path("slotferry-spool"),
        description="Folder for what servers send and targets have not taken yet. A copy may need as much disk as its "
        "source has data.",
    )
    node: Word = Field(
        default="",
        description='The node that the migrator runs on, by the name that topom has for it. "": none. '
        "Copies from servers of that node come here first.",
    )
    datacenter: Word = Field(
        default="",
        description='The datacenter that the migrator runs in, by the name that topom has for it. "": none. '
        "Copies from servers of that datacenter come here before they go to others.",
    )
    redis_user: str = Field(
        default="",
        description='The ACL user by which the migrator logs in at the Redis servers. "": their user default.',
    )
    redis_password: SecretStr = Field(
        default=SecretStr(""),
        description='The migrator\'s password at the Redis servers. "": none.',
    )
    redis_tls: bool = Field(default=False, description="Whether the migrator speaks TLS with the Redis servers.")
    redis_tls_ca: Live[str] = Field(
        default="",
        description='File with the certificates of the authorities for servers, in PEM. "": those that the system'
        " trusts. Live.",
    )
    redis_tls_certificate: Live[str] = Field(
        default="", description='File with the certificate shown to servers, in PEM. "": none. Live.'
    )
    redis_tls_key: Live[str] = Field(default="", description="File with its key, in PEM, without a password. Live.")
    redis_tls_verify_host: bool = Field(
        default=True,
        description="Whether a server's certificate has to name the host in the server's address.",
    )
    log_level: Live[Literal["debug", "info", "warning", "error"]] = Field(
        default="info", description="The least important events that are logged: debug, info, warning or error. Live."
    )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if bool(self.redis_tls_certificate) != bool(self.redis_tls_key):
            raise ValueError("redis_tls_certificate: needs redis_tls_key, and the other way round")
        if self.redis_user and not self.redis_password.get_secret_value():
            raise ValueError("redis_user: needs redis_password")
        return self

    def bound(self) -> dict[str, object]:
        """Certificates go with whether TLS is spoken."""
        return {**super().bound(), **of_files("redis_tls", self.redis_tls)}

    def redis_access(self) -> ServerAccess:
        """How to log in at the servers. Raises :class:`slots.tls.TlsError`."""
        tls = ServerTls.of(self, "redis_tls")
        return ServerAccess(self.redis_password.get_secret_value(), self.redis_user, tls if self.redis_tls else None)
