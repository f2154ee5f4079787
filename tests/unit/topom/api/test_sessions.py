"""The cookie of a session: what it says, who signed it, and when it ends."""

import pytest

from topom.api.sessions import SESSION_SECONDS, Caller, Sessions
from topom.term.tokens import Role, Token, Tokens

GRAFANA = Token(Role.VIEWER, "grafana", b"secret of grafana")
ADA = Token(Role.OPERATOR, "ada", b"secret of ada")
TOKENS = Tokens("own secret", GRAFANA, ADA)
NOW = 1_790_000_000.5


def sessions(tokens: Tokens = TOKENS, product: str = "shop", now: float = NOW) -> Sessions:
    return Sessions(tokens, product, lambda: now)


def test_every_topom_with_the_same_tokens_takes_it() -> None:
    value, caller = sessions().begin(GRAFANA)
    assert caller == Caller("grafana", Role.VIEWER, int(NOW) + SESSION_SECONDS)
    assert sessions(Tokens("own secret", ADA, GRAFANA)).read(value.encode()) == caller
    assert value.startswith(f"viewer:grafana:{caller.expires}:")
    assert "secret" not in value


@pytest.mark.parametrize(("later", "held"), [(0, True), (SESSION_SECONDS - 1, True), (SESSION_SECONDS, False)])
def test_it_ends(later: float, held: bool) -> None:
    value, _ = sessions().begin(GRAFANA)
    assert (sessions(now=NOW + later).read(value.encode()) is not None) == held


def test_clocks_of_topoms_may_differ_a_little() -> None:
    value, _ = sessions().begin(GRAFANA)
    assert sessions(now=NOW - 59).read(value.encode()) is not None
    assert sessions(now=NOW - 3600).read(value.encode()) is None


def test_it_ends_with_its_token() -> None:
    value, _ = sessions().begin(GRAFANA)
    changed = Token(Role.VIEWER, "grafana", b"another secret")
    assert sessions(Tokens("own secret", changed, ADA)).read(value.encode()) is None
    # While both hold, it holds. What happens to other tokens does not matter.
    assert sessions(Tokens("new own", changed, GRAFANA)).read(value.encode()) is not None


@pytest.mark.parametrize(
    "other", [Token(Role.OPERATOR, "grafana", GRAFANA.secret), Token(Role.VIEWER, "other", GRAFANA.secret)]
)
def test_it_ends_when_the_token_gets_another_role_or_name(other: Token) -> None:
    value, _ = sessions().begin(GRAFANA)
    assert sessions(Tokens("own secret", other)).read(value.encode()) is None


def test_it_holds_for_one_product() -> None:
    value, _ = sessions().begin(GRAFANA)
    assert sessions(product="stock").read(value.encode()) is None


def test_no_change_of_one_byte_is_taken() -> None:
    value, _ = sessions().begin(GRAFANA)
    good = value.encode()
    for place in range(len(good)):
        for byte in (good[place] ^ 1, 0xFF):
            assert sessions().read(good[:place] + bytes([byte]) + good[place + 1 :]) is None, place
    assert sessions().read(good) is not None


def test_nothing_of_another_session_is_taken() -> None:
    viewer, _ = sessions().begin(GRAFANA)
    operator, _ = sessions().begin(ADA)
    signature = viewer.rpartition(":")[2]
    mixed = operator.rpartition(":")[0] + ":" + signature
    for value in (
        *(mixed, viewer.replace("viewer", "operator"), viewer.replace("grafana", "ada"), viewer + "=", viewer + ":"),
        *("", ":", ":::", "viewer:grafana", f"viewer:grafana:{2**63}:{signature}", f"viewer:grafana::{signature}"),
        *(" " + viewer, viewer * 2, "x" * 100_000, "viewer:gräfana:1:x"),
    ):
        assert sessions().read(value.encode()) is None, value[:60]


def test_a_viewer_who_signs_by_itself_remains_a_viewer_for_twelve_hours() -> None:
    """Who has the secret can make cookies, but none that does more than the token."""
    own = Tokens("", Token(Role.OPERATOR, "grafana", GRAFANA.secret), Token(Role.VIEWER, "grafana", GRAFANA.secret))
    forged, _ = Sessions(own, "shop", lambda: NOW).begin(own.all[0])
    assert forged.startswith("operator:grafana:")
    assert sessions().read(forged.encode()) is None
    late, _ = Sessions(own, "shop", lambda: NOW + 3600).begin(own.all[1])
    assert sessions().read(late.encode()) is None
