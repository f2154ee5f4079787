"""One record shows why something waits: no model of the API has a bare sentence for it."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel

from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom import api
from topom.api.callers import Callers
from topom.api.models import Refusal
from topom.api.size_models import MissingServer
from topom.reasons import Kind, Reason
from topom.term.service import Topom
from topom.term.settings import TopomSettings
from topom.term.tokens import Tokens

NAMES = {"reason", "reasons", "problem", "trouble", "why", "message", "waits_for", "foreign", "halted", "notes"}
NOT_WAITING = {
    (Refusal, "message"),  # the answer to a request
    (MissingServer, "reason"),  # sent by the sizing job: why a server is not in what it measured
}
NOT_WAITING_NAMED = {
    ("Pause", "why"),  # an operator's word, why topom is paused
    ("PauseRequest", "why"),
    ("Leaving", "why"),  # an operator's word, why it is to leave
    ("BatchProgress", "notes"),  # what operators should know about the servers of a batch that goes on
    ("Rebalance", "reasons"),  # why a plan that an operator asked for does not move more
    ("NotableRequest", "why"),  # what there was much of; nothing waits
}


def models() -> Iterator[type[BaseModel]]:
    for module in pkgutil.iter_modules(api.__path__):
        found = vars(import_module(f"{api.__name__}.{module.name}")).values()
        known = (one for one in found if isinstance(one, type) and issubclass(one, BaseModel))
        yield from (one for one in known if one.__module__.startswith(api.__name__))


def fields() -> Iterator[tuple[type[BaseModel], str, object]]:
    for model in {*models()}:
        for name, field in model.model_fields.items():
            yield model, name, field.annotation


def test_no_model_says_it_in_a_bare_sentence() -> None:
    found = {
        (model.__name__, name)
        for model, name, type_ in fields()
        if name in NAMES and (model, name) not in NOT_WAITING and type_ not in (Reason, Reason | None)
    }
    assert found - NOT_WAITING_NAMED == set()
    assert found >= NOT_WAITING_NAMED, "what is no exception any more is named as one"


def test_every_resource_where_something_waits_shows_the_record() -> None:
    shown = {model.__name__ for model, _, type_ in fields() if "topom.reasons.Reason" in str(type_) or type_ is Reason}
    assert shown >= {
        *("BatchProgress", "Digest", "Group", "Known", "Leaving", "Migration", "Pacing", "PlacedGroup"),
        *("PlacedNode", "Placement", "PlacementPlan", "PlacementStep", "PoolServer", "Sentinel", "Sentinels", "Server"),
        *("SkippedSlots", "Slot", "Status", "TopomShown", "WatchedGroup"),
    }


def test_programs_find_its_kinds_in_the_schema(tmp_path: Path) -> None:
    topom = Topom(TopomSettings.load(None, data=tmp_path), MemoryStore(), FakeMover())
    found = api.build(topom, Callers(Tokens("t"))).openapi()["components"]["schemas"]
    assert [*found["Reason"]["properties"]] == ["kind", "what", "since", "to_do"]
    assert found["Kind"]["enum"] == [*Kind]
