"""The objects of ``/load``, as pydantic models."""

from typing import Literal

from pydantic import BaseModel, Field

from slots.messages.load import Why
from topom.load.notable import MOST_KEPT


class Rates(BaseModel):
    """How busy something is: means of late, in which what is older by 30 seconds weighs half."""

    requests: float = Field(description="A second.")
    errors: float = Field(description="Of those, a second.")
    bytes_in: float = Field(description="Of requests, a second.")
    bytes_out: float = Field(description="Of replies, a second.")


class Minute(BaseModel):
    """Counts of the minute that ended last."""

    requests: int
    errors: int
    bytes_in: int
    bytes_out: int


class Busy(Rates):
    """What all that is measured has in common."""

    minute: Minute


class SlotLoad(Busy):
    """A slot."""

    slot: int
    group_id: int = Field(description="That owns it; 0: offline.")


class GroupLoad(Busy):
    """All slots of a group."""

    group_id: int
    slots: int = Field(description="That it owns.")
    milliseconds: float | None = Field(description="As in `ServerLoad`, over all servers of the group.")


class ServerLoad(Busy):
    """What proxies sent a server."""

    server: str
    group_id: int
    milliseconds: float | None = Field(
        description="Mean time from when a request was queued for the server until its reply was there, without "
        "commands that wait there, such as BLPOP; null without requests."
    )


class ProxyLoad(Busy):
    """All requests of a proxy's clients, those without keys too."""

    proxy_id: int
    address: str


class UserLoad(Busy):
    """All requests of a user."""

    user: str


class HotKey(BaseModel):
    """A key that is asked for much."""

    key: str = Field(description="Its first bytes. Bytes that are no UTF-8 are written as `\\xNN`. Never its value.")
    hashed: bool = Field(description="Whether `key` is a hash of the key.")
    length: int = Field(description="Of the whole key, in bytes.")
    database: int
    slot: int
    group_id: int = Field(description="That owns the slot; 0: offline.")
    rate: float = Field(description="Requests a second by samples; too high by `excess` at most.")
    excess: float
    share: float = Field(description="Of all requests of all clients, from 0 to 1.")


class Load(BaseModel):
    """What the proxies count, as the topom that leads has added it up. It begins anew with each leader."""

    measured_seconds: float = Field(description="How long the counts cover; 0: nothing is known.")
    minute_seconds: float = Field(description="How much of the minute that ended last was measured.")
    proxies_telling: int = Field(description="Proxies that tell their load.")
    proxies_total: int = Field(description="All members. What the others serve is not in the figures.")
    total: Rates = Field(description="Of all clients.")
    slots: list[SlotLoad] = Field(description="The 100 busiest first, or all by number.")
    groups: list[GroupLoad] = Field(description="By number.")
    servers: list[ServerLoad] = Field(description="By group; those without requests are left out.")
    proxies: list[ProxyLoad] = Field(description="By number.")
    users: list[UserLoad] = Field(description="The 100 busiest, the busiest first.")
    hot_keys: list[HotKey] = Field(description="The 100 hottest, the hottest first.")


class Series(BaseModel):
    """One group, server, proxy, user or slot over time: a value for each minute of the answer; null where nothing is
    kept of it."""

    name: str
    requests: list[float | None] = Field(description="A second.")
    bytes_in: list[float | None] = Field(description="Of requests, a second.")
    bytes_out: list[float | None] = Field(description="Of replies, a second.")


class History(BaseModel):
    """The load by minute."""

    of: Literal["groups", "servers", "proxies", "users", "slots"]
    minutes: list[float] = Field(
        description="When each began, in seconds since 1970, UTC. One that nobody measured is not there."
    )
    series: list[Series] = Field(description="The busiest of that time first.")


class NotableRequest(BaseModel):
    """Requests of the same reason, command, database and key."""

    why: Why = Field(
        description="The request's bytes, its reply's bytes, or the elements that its reply shows were many, or it "
        "took long: the first of these that holds."
    )
    command: str = Field(description="In lower case, a subcommand behind `|`.")
    key: str = Field(description="As in `HotKey`; empty if it is not known.")
    hashed: bool = Field(description="Whether `key` is a hash of the key.")
    length: int = Field(ge=0, description="Of the whole key, in bytes; 0 if it is not known.")
    database: int = Field(ge=0)
    slot: int | None = Field(ge=0, description="null: of no slot, or of several.")
    group_id: int = Field(ge=0, description="That owns the slot; 0: none.")
    times: int = Field(ge=1, description="How many such requests there were.")
    first_at: float = Field(description="When the first was answered, in seconds since 1970, UTC.")
    last_at: float = Field(description="When the last was.")
    milliseconds: float = Field(ge=0, description="The longest that one took, from when the proxy had read it.")
    bytes_in: int = Field(ge=0, description="Of the largest request.")
    bytes_out: int = Field(ge=0, description="Of the largest reply.")
    elements: int = Field(ge=0, description="The most that a reply showed; 0 if none did.")
    user: str = Field(description="Of the worst one, by what `why` says; so are the next four.")
    client: str = Field(description="`host:port`; empty if it had left.")
    server: str = Field(description="`host:port`; empty if the proxy answered, or several servers did.")
    proxy_id: int
    proxy_address: str = Field(description="Empty if the proxy is no member any more.")


class NotableRequests(BaseModel):
    """What proxies told of big keys and slow commands, without those that were not seen for a day. It begins anew with
    each leader."""

    since: float = Field(description="When this topom began to listen, in seconds since 1970, UTC.")
    requests: list[NotableRequest] = Field(max_length=MOST_KEPT, description="The one that was seen last first.")
