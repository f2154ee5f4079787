"""The Sentinels that watch groups for topom, and what they say."""

from pydantic import BaseModel, Field

from topom.api.access import ServedTopom
from topom.api.models import Address, In
from topom.api.routers import resource
from topom.masters.sentinels.service import HighAvailability
from topom.masters.sentinels.votes import majority_of
from topom.reasons import Reason
from topom.term.service import Topom

router = resource("/sentinels", "sentinels")


class NewSentinel(In):
    """A Sentinel to add."""

    address: Address


class Sentinel(BaseModel):
    """One Sentinel, as it last answered."""

    address: str
    up: bool
    reason: Reason | None = Field(description="Why it cannot be used; null if it can.")
    masters: dict[int, str] = Field(description="By group, the server that it names as the master.")


class WatchedGroup(BaseModel):
    """A group that Sentinels watch: one with a replica."""

    id: int
    master: str = Field(description="Its master in the slot table.")
    reason: Reason | None = Field(description="Why what Sentinels say of it is not followed; null if it is.")


class Sentinels(BaseModel):
    """All Sentinels, and the groups that they watch."""

    ha: HighAvailability = Field(description="The setting of that name. Sentinels are asked only if it is `sentinel`.")
    majority: int = Field(description="Sentinels that have to name another master before it is followed.")
    sentinels: list[Sentinel]
    groups: list[WatchedGroup]
    reason: Reason | None = Field(
        default=None, description="Why they could replace no master that fails; null if they can."
    )


class Told(BaseModel):
    """Which Sentinels could not be told."""

    failed: dict[str, str] = Field(description="By Sentinel, why it could not be told.")


def _describe(topom: Topom) -> Sentinels:
    sentinels = topom.sentinels
    return Sentinels(
        ha=sentinels.mode,
        majority=majority_of(len(sentinels.known)),
        sentinels=[
            Sentinel(address=one.address, up=one.reason is None, reason=one.reason, masters=dict(one.masters))
            for one in sentinels.status()
        ],
        groups=[
            WatchedGroup(id=group_id, master=master, reason=sentinels.reason_for(group_id))
            for group_id, master in sentinels.watched().items()
        ],
        reason=sentinels.reason(),
    )


@router.get("")
async def list_sentinels(topom: ServedTopom) -> Sentinels:
    """All Sentinels, what they say, and the groups that they watch."""
    return _describe(topom)


@router.post("", status_code=201)
async def add_sentinel(topom: ServedTopom, new: NewSentinel) -> Sentinels:
    """Let one more Sentinel watch all groups."""
    await topom.sentinels.add(new.address)
    return _describe(topom)


@router.post("/resync")
async def resync_sentinels(topom: ServedTopom) -> Told:
    """Let every Sentinel forget the groups and the other Sentinels, and watch the groups anew."""
    outcome = await topom.sentinels.resync()
    return Told(failed={address: reason for address, reason in outcome.items() if reason})


@router.delete("/{address}")
async def remove_sentinel(topom: ServedTopom, address: str) -> Told:
    """Remove a Sentinel: if it answers it ends to watch, and the others count without it."""
    reason = await topom.sentinels.remove(address)
    return Told(failed={address: reason} if reason else {})
