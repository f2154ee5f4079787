"""Whether a server can be followed, by what INFO says."""

import pytest

from migrator.errors import MigrationError
from migrator.stream.errors import CountsFollowers, HistoryChanged, NotFollowable, ReplicaDiffers
from migrator.stream.standing import require_followable
from slots.replies import Info, NotUnderstood

ID = "a" * 40
REPLICA = {"role": "slave", "master_link_status": "up", "master_replid": ID, "slave_read_only": 1}
MASTER = {"role": "master", "master_replid": ID}


def info(**fields: object) -> Info:
    return Info.parse("\r\n".join(f"{name}:{value}" for name, value in fields.items()))


@pytest.mark.parametrize("history", [ID, ""])
def test_a_master_can(history: str) -> None:
    require_followable("h:1", info(**MASTER), history)


def test_a_replica_of_the_history_can() -> None:
    require_followable("h:1", info(**REPLICA, master_sync_in_progress=0, loading=0, evicted_keys=0), ID)


def test_a_master_before_redis_4_can() -> None:
    require_followable("h:1", info(role="master"), ID)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"loading": 1}, NotFollowable),
        ({"async_loading": 1}, NotFollowable),
        ({"master_link_status": "down"}, NotFollowable),
        ({"master_sync_in_progress": 1}, NotFollowable),
        ({"slave_read_only": 0}, ReplicaDiffers),
        ({"evicted_keys": 3}, ReplicaDiffers),
        ({"unexpected_error_replies": 1}, ReplicaDiffers),
        ({"master_replid": "b" * 40}, HistoryChanged),
        # It was promoted: what it writes itself is another history, whatever it would count.
        ({"role": "master", "master_replid": "b" * 40, "min_slaves_good_slaves": 0}, HistoryChanged),
        ({"role": "sentinel"}, NotUnderstood),
        ({"slave_read_only": "x"}, NotUnderstood),
    ],
)
def test_a_replica_that_cannot(said: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        require_followable("h:1", info(**{**REPLICA, **said}), ID)


@pytest.mark.parametrize(
    ("said", "error"),
    [({"min_slaves_good_slaves": 0}, CountsFollowers), ({"role": "slave"}, HistoryChanged)],
)
def test_a_master_that_cannot(said: dict[str, object], error: type[MigrationError]) -> None:
    with pytest.raises(error):
        require_followable("h:1", info(**{**MASTER, **said}))
