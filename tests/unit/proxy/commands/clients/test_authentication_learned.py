"""A subcommand of SCRIPT or FUNCTION that a newer server has is not for users limited to some databases."""

from types import SimpleNamespace

import pytest

from proxy.commands.clients.authentication import Authentication
from slots import commands, learned

ENTRIES = [
    ["script", -2, [], 0, 0, 0, [], [], [], [["script|show", 3, ["noscript"], 0, 0, 0, [], [], [], []]]],
]


@pytest.mark.parametrize("name", ["SCRIPT|SHOW"])
def test_a_learned_subcommand_has_its_containers_rights(name: str) -> None:
    known = commands.table()
    new = learned.missing(known, learned.rows(ENTRIES, {name}))
    row = commands.find([b"SCRIPT", b"SHOW", b"x" * 40], known | new)
    assert row.route is commands.Route.ANY
    user = SimpleNamespace(admin=True, databases=frozenset({0}), read_only=False)
    session = SimpleNamespace(read_only=False, attention=0, state=SimpleNamespace(user=user))
    assert Authentication.refusal(SimpleNamespace(), session, row) is not None  # as at 6e8ec1a
