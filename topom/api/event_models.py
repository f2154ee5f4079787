"""The objects of events, as pydantic models."""

from pydantic import BaseModel, Field

from topom.cluster.events import MOST_TEXT, What
from topom.reasons import Reason


class Event(BaseModel):
    """Something that an operator or topom did."""

    id: int = Field(description="Counts from 1, without gaps.")
    at: float = Field(description="When, in seconds since 1970, UTC, by the clock of the topom that stored it.")
    who: str = Field(
        examples=["ada@host (by operator)", "topom 1f00ba12"],
        description="The name of the token that was shown, behind the name in the request's header X-Slotferry-User if "
        "it had one; or `topom` and the first eight digits of its instance.",
    )
    what: str = Field(examples=[What.SLOTS_ASSIGNED], description=f"One of {', '.join(What)}.")
    text: str = Field(description=f"A sentence, of {MOST_TEXT} characters at most.")
    epoch_before: int = Field(description="The slot table's before it.")
    epoch_after: int = Field(description="The slot table's after it; the same if the table did not change.")
    reason: Reason | None = Field(default=None, description="Of what waits: why it does, which `text` says, too.")


class Events(BaseModel):
    """Events, the oldest first."""

    oldest: int = Field(description="Id of the oldest event that is kept; 0 without any.")
    newest: int = Field(description="Id of the newest event; below `since` if the store is another one than before.")
    events: list[Event]
