"""The objects of the users that topom keeps, as pydantic models."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from topom.api.models import In


class NewUser(In):
    """How a user is to be. Fields that are not named stay as they are."""

    fields: dict[str, Any] = Field(
        description="Those of an entry of a proxy's setting `users`; null brings one back to its default. "
        "A password is told as `password_sha256`.",
        examples=[{"password_sha256": "2bb8...", "read_only": True, "rules": None}],
    )


class User(BaseModel):
    """A user that clients may log in as. No answer has its password, nor a digest of it."""

    name: str
    password: bool = Field(description="Whether it needs a password.")
    fields: dict[str, Any] = Field(description="What else was said of it, where that is not the default.")


class LeftOut(BaseModel):
    """A user that is not this one at a proxy."""

    proxy_id: int
    name: str
    cause: Literal["own", "unknown", "full", "other"] = Field(
        description="`own`: the proxy has a user of this name itself, and that one holds; `unknown`: its version "
        "does not know all fields; `full`: it has too many users with limits."
    )


class Behind(BaseModel):
    """A proxy that does not use these users."""

    proxy_id: int
    cause: str = Field(description="In a few words.")


class Users(BaseModel):
    """The users that topom keeps, by name."""

    users: list[User]
    left_out: list[LeftOut] = Field(description="Where they do not hold. Each proxy names a few.")
    behind: list[Behind] = Field(description="Proxies that do not use them as they are now.")
