"""The objects of the slot rules, as pydantic models."""

from typing import Annotated

from pydantic import BaseModel, Field

from slots.rules import MOST_BYTES, MOST_RULES
from topom.api.models import In
from topom.migration.rulechanges import Stage
from topom.reasons import Reason

Pattern = Annotated[
    str,
    Field(
        max_length=MOST_BYTES,
        examples=["bull:(*):*"],
        description="`*` is any bytes, as few as possible. What stands in parentheses is hashed.",
    ),
]
Database = Annotated[int | None, Field(ge=0, le=2**31 - 1, description="Null for all databases.")]
Tag = Annotated[
    str | None,
    Field(max_length=MOST_BYTES, description="What is hashed in place of the key, where nothing is in parentheses."),
]


class SlotRule(BaseModel):
    """What is hashed of keys that match a pattern."""

    pattern: Pattern
    database: Database = None
    tag: Tag = None


class NewRule(In):
    """A rule to add."""

    pattern: Pattern
    database: Database = None
    tag: Tag = None


class NamedRule(In):
    """A rule to remove: no two have the same pattern and database."""

    pattern: Pattern
    database: Database = None


class NewRules(In):
    """How the rules are to change. What is removed is removed first."""

    add: list[NewRule] = Field(default_factory=list, max_length=MOST_RULES)
    remove: list[NamedRule] = Field(default_factory=list, max_length=MOST_RULES)
    first: bool = Field(default=False, description="Put new rules before the others, not behind them.")
    dry_run: bool = Field(default=False, description="Only count the keys that would be in another group.")


class RuleChange(BaseModel):
    """A change of the rules."""

    rules: list[SlotRule] = Field(description="As they are to be.")
    dry_run: bool
    stage: Stage = Field(
        description="`counting` keys; `locking` all slots; `checking`, while no client may use the keys whose slot "
        "changes; `done`; `counted`, and nothing changed; `cancelled`; `failed`."
    )
    began_at: float = Field(description="In seconds since 1970, UTC.")
    keys: int = Field(description="How many were looked at in this stage, or in the last one.")
    misplaced: int = Field(description="How many of them would be in another group.")
    named: list[str] = Field(description="A few of those.")
    reason: Reason | None = Field(description="Why it failed.")


class Rules(BaseModel):
    """The product's slot rules."""

    epoch: int
    rules: list[SlotRule] = Field(description="The first that matches a key says what of it is hashed.")
    change: RuleChange | None = Field(
        description="The change that is under way, or the last one; null if none was since this topom leads."
    )
