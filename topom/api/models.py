"""What the objects of the API share, as pydantic models. They check what comes in, and describe everything in OpenAPI.

The objects of a resource are in the module named after it.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Address = Annotated[str, Field(max_length=300, examples=["127.0.0.1:6379"], description="`host:port`")]
Datacenter = Annotated[
    str, Field(max_length=64, examples=["paris-1"], description="Proxies read from replicas in their own first.")
]
Node = Annotated[
    str,
    Field(
        max_length=64, examples=["rack3-host7"], description="The host it runs on; if not said, that of its address."
    ),
]
Ranges = Annotated[
    str, Field(max_length=200_000, examples=["0-511,700"], description="Slots and ranges of slots, comma-separated.")
]


class In(BaseModel):
    """The base of all objects that come in: an unknown field is refused."""

    model_config = ConfigDict(extra="forbid")


class Refusal(BaseModel):
    """Why a request was refused, and what to do about it."""

    error: str = Field(description="The type of the error, for programs.")
    message: str = Field(description="What happened and what to do, for people.")
