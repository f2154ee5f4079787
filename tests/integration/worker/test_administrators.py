"""Users that are not administrators: only what concerns others is refused, in Redis's own words."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.test_users import USERS, connected, redis_with

StartWorker = Callable[..., Awaitable[WorkerHarness]]

OF_EVERYBODY = (
    *("CLIENT LIST", "client kill addr 1.2.3.4:5", "CLIENT KILL 1.2.3.4:5", "CLIENT UNBLOCK 1", "CLIENT NO-EVICT on"),
    *("CLIENT PAUSE 1", "CLIENT UNPAUSE", "CONFIG GET *", "CONFIG SET maxmemory 1", "CONFIG RESETSTAT"),
    *("CONFIG REWRITE", "SLOWLOG GET", "SLOWLOG LEN", "SLOWLOG RESET", "LATENCY HISTOGRAM", "LATENCY LATEST"),
    *("LATENCY RESET", "LATENCY DOCTOR", "LATENCY HISTORY x", "DEBUG SLEEP 0", "MODULE LIST", "ACL LIST", "ACL USERS"),
    *("ACL LOG", "ACL GETUSER x", "PFDEBUG ENCODING k", "MONITOR", "SHUTDOWN", "REPLICAOF x 1", "BGSAVE"),
)
OF_ITS_OWN = (
    *("CLIENT ID", "CLIENT INFO", "CLIENT GETNAME", "CLIENT SETNAME me", "CLIENT TRACKING off", "CLIENT GETREDIR"),
    *("CLIENT SETINFO LIB-NAME me", "CLIENT REPLY ON", "CLIENT CACHING yes", "INFO server", "ROLE", "TIME"),
    *("PUBSUB NUMPAT", "ACL WHOAMI", "ACL CAT", "LOLWUT", "HELLO 2", "PING", "CONFIG HELP", "SLOWLOG HELP"),
    *("COMMAND COUNT", "WAIT 0 0"),
)


async def test_no_administrator_is_refused_what_redis_counts_as_that(start_worker: StartWorker, tmp_path: Path) -> None:
    users = [*USERS, {"name": "staff", "password": "s", "admin": False}]
    worker = await start_worker(servers=1, users=users)
    async with (
        redis_with(tmp_path, "staff on >s ~* &* +@all -@admin") as server,
        connected(server, "staff s") as direct,
    ):
        for login in ("staff s", "tenant t", "reader r"):
            async with connected(worker.settings.listen, login) as client:
                await client("SELECT 1")
                for request in OF_EVERYBODY:
                    refused = await client(request)
                    assert refused.startswith(b"-NOPERM this user has no permissions to run the '"), request
                    # Redis first looks at whether it allows DEBUG at all.
                    if not request.startswith("DEBUG"):
                        assert refused == await direct(request), request
                for request in OF_ITS_OWN:
                    assert not (await client(request)).startswith(b"-NOPERM"), request
                for request in ("SCRIPT KILL", "FUNCTION KILL"):
                    assert (await client(request)).startswith(b"-NOPERM"), request


async def test_what_others_run_goes_on(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=USERS)
    async with (
        connected(worker.settings.listen, "writer w") as writer,
        connected(worker.settings.listen, "tenant t") as tenant,
    ):
        number = (await writer("CLIENT ID"))[1:-2].decode()
        for request in ("CLIENT KILL USER writer", f"CLIENT KILL ID {number}", f"CLIENT UNBLOCK {number}"):
            for within in (False, True):
                if within:
                    await tenant("MULTI")
                assert (await tenant(request)).startswith(b"-NOPERM")
            await tenant("DISCARD")
        assert await writer("PING") == b"+PONG\r\n"


async def test_who_is_an_administrator(start_worker: StartWorker) -> None:
    users = [
        {"name": "monitor", "password": "m", "read_only": True, "admin": True},
        {"name": "default", "no_password": True, "admin": False},
        *USERS,
    ]
    worker = await start_worker(servers=1, users=users)
    async with connected(worker.settings.listen) as client:
        refused = b"-NOPERM this user has no permissions to run the 'client|list' command\r\n"
        assert await client("CLIENT LIST") == refused
        assert await client("SET k v") == b"+OK\r\n"
        assert await client("AUTH monitor m") == b"+OK\r\n"
        assert b"user=monitor" in await client("CLIENT LIST")
        assert (await client("SET k v")).startswith(b"-NOPERM")
        assert await client("AUTH writer w") == b"+OK\r\n"
        assert b"user=writer" in await client("CLIENT LIST")
        assert await client("RESET") == b"+RESET\r\n"
        assert await client("CLIENT LIST") == refused
