"""Which followers the leader knows, and since when one is silent."""

import time

import pytest

from topom.term import roster as module
from topom.term.roster import Follower, Roster


async def test_a_follower_that_says_nothing_more_is_silent_since_its_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    roster = Roster()
    for url in ("http://two", "http://one"):
        roster.hear(Follower("i", url, "0", 3))
    assert [(follower.url, since) for follower, since in roster.followers()] == [
        ("http://one", None),
        ("http://two", None),
    ]
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.0)
    [(_, since), _] = roster.followers()
    assert since == pytest.approx(time.time(), abs=60)
    assert roster.followers()[0][1] == since, "it is no news each time that it is asked"
    monkeypatch.setattr(module, "FORGOTTEN_SECONDS", 0.0)
    assert roster.followers() == []
