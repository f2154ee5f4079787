"""The errors of servers, in the words that an operator reads."""

import pytest

from migrator.errors import Refusal, SourceRefused, TargetRefused


@pytest.mark.parametrize(
    ("reply", "refusal", "passing"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", Refusal.MEMORY, False),
        ("READONLY You can't write against a read only replica.", Refusal.READ_ONLY, False),
        ("LOADING Redis is loading the dataset in memory", Refusal.LOADING, True),
        ("BUSY Redis is busy running a script.", Refusal.BUSY, True),
        ("ERR DUMP payload version or checksum are wrong", Refusal.VERSION, False),
        ("ERR Bad data format", Refusal.VERSION, False),
        ("NOAUTH Authentication required.", Refusal.AUTHENTICATION, False),
        ("WRONGPASS invalid username-password pair or user is disabled.", Refusal.AUTHENTICATION, False),
        ("NOPERM this user has no permissions to run the 'restore' command", Refusal.PERMISSION, False),
        ("ERR DB index is out of range", Refusal.DATABASE, False),
        ("MISCONF Redis is configured to save RDB snapshots", Refusal.PERSISTENCE, False),
        ("ERR something new", Refusal.OTHER, False),
        ("@user_script: 3: -MISCONF Redis is configured to save RDB snapshots", Refusal.PERSISTENCE, False),
        (
            "ERR Error running script (call to f_0123abcd): @user_script:9: @user_script: 9: -READONLY You can't write",
            Refusal.READ_ONLY,
            False,
        ),
        ("ERR Error running script (call to f_0123abcd): @user_script:9: nonsense", Refusal.OTHER, False),
    ],
)
def test_a_refusal_has_a_ground_and_names_the_server(reply: str, refusal: Refusal, passing: bool) -> None:
    error = TargetRefused("h:1", reply)
    assert error.refusal is refusal
    assert error.passing is passing
    assert "target h:1" in str(error)
    assert reply in str(error)


def test_source_and_target_are_told_apart() -> None:
    assert "source h:1" in str(SourceRefused("h:1", "NOAUTH Authentication required."))
