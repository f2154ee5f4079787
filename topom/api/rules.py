"""The product's slot rules, and changes of them."""

from collections.abc import Iterable

from slots.rules import RuleError, SlotRule, checked
from topom.api import rule_models as models
from topom.api.access import ServedTopom
from topom.api.routers import resource
from topom.errors import Invalid, NotFound
from topom.term.service import Topom

router = resource("/rules", "slots")


class InvalidRule(Invalid):
    """A slot rule that cannot be understood, or that is there already with another tag."""


class RuleNotFound(NotFound):
    """There is no such slot rule."""


def shown(rules: Iterable[SlotRule]) -> list[models.SlotRule]:
    """Rules as the API has them."""
    return [models.SlotRule(**rule.to_wire()) for rule in rules]


def _describe(topom: Topom) -> models.Rules:
    change = topom.rules.last
    table = topom.ledger.table
    return models.Rules(
        epoch=table.epoch,
        rules=shown(table.rules),
        change=None
        if change is None
        else models.RuleChange(
            rules=shown(change.rules),
            dry_run=change.dry,
            stage=change.stage,
            began_at=change.began_at,
            keys=change.tally.keys,
            misplaced=change.tally.misplaced,
            named=change.tally.named,
            reason=change.reason,
        ),
    )


def _changed(topom: Topom, body: models.NewRules) -> tuple[SlotRule, ...]:
    """The rules as they are to be. Raises InvalidRule, RuleNotFound."""
    rules = list(topom.ledger.table.rules)
    for named in body.remove:
        found = [rule for rule in rules if (rule.pattern, rule.database) == (named.pattern, named.database)]
        if not found:
            where = "in all databases" if named.database is None else f"in database {named.database}"
            raise RuleNotFound(f"there is no slot rule {named.pattern!r} {where}; see slotferry rules list")
        rules.remove(found[0])
    try:
        added = [SlotRule(new.pattern, new.database, new.tag) for new in body.add]
        added = [rule for rule in dict.fromkeys(added) if rule not in rules]
        for rule in added:
            if rule.database is not None and rule.database >= topom.ledger.state.product.databases:
                last = topom.ledger.state.product.databases - 1
                raise InvalidRule(f"{rule}: there is no database {rule.database}; the last one is {last}")
        return checked([*added, *rules] if body.first else [*rules, *added])
    except RuleError as error:
        raise InvalidRule(str(error)) from error


@router.get("")
async def show(topom: ServedTopom) -> models.Rules:
    """The rules, and how a change of them goes."""
    return _describe(topom)


@router.post("", status_code=202)
async def change(topom: ServedTopom, body: models.NewRules) -> models.Rules:
    """Begin to change the rules. They change at one epoch, if no key is in another group by that; look how it goes."""
    topom.rules.begin(_changed(topom, body), body.dry_run)
    return _describe(topom)


@router.post("/cancel")
async def cancel(topom: ServedTopom) -> models.Rules:
    """End a change that is under way. The rules stay as they are, unless it was too late."""
    await topom.rules.cancel()
    return _describe(topom)
