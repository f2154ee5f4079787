"""Running processes take other files for TLS with each other and with the Redis servers, all of them or none."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis

from slotferry.processes import ManagedProcess, free_ports
from slots.access import ServerTls
from slots.python import PYTHON
from tests.certificates import Authority, Issued
from tests.integration.reloading.processes import (
    LIMIT_SECONDS,
    NEW,
    OLD,
    OWN,
    File,
    FiledTopom,
    filed_topom,
    hang_up,
)
from tests.integration.reloading.proxies import NEXT, NOW, Proxy
from tests.integration.topom_process import redis_server

STREAM = {"SLOTFERRY_TOPOM_MIGRATION_WAY": "stream"}


class Authorities:
    """One of yesterday, one of tomorrow, and a file with both."""

    def __init__(self, folder: Path) -> None:
        self.old, self.new = Authority(folder, "old"), Authority(folder, "new")
        both = folder / "both.pem"
        both.write_text("".join(Path(one.file).read_text() for one in (self.old, self.new)))
        self.both = str(both)

    def of_servers(self, name: str, authority: Authority, trusted: str) -> dict[str, Any]:
        """Settings for TLS with the Redis servers."""
        issued = authority.issue(name)
        return {
            "redis_tls": True,
            "redis_tls_ca": trusted,
            "redis_tls_certificate": issued.certificate,
            "redis_tls_key": issued.key,
        }

    def of_topom(self, issued: Issued, authorities: str) -> dict[str, Any]:
        """Settings by which topom serves, and reaches itself."""
        return {"tls_certificate": issued.certificate, "tls_key": issued.key, "tls_ca": authorities}

    def client_of(self, topom: FiledTopom) -> httpx.AsyncClient:
        """An operator who trusts both."""
        return httpx.AsyncClient(
            base_url=topom.url,
            headers={"Authorization": f"Bearer {OWN}"},
            timeout=LIMIT_SECONDS,
            verify=ServerTls(self.both).context(),
        )


@pytest.fixture
def authorities(tmp_path: Path) -> Authorities:
    return Authorities(tmp_path)


@contextmanager
def tls_server(folder: Path, issued: Issued, trusted: str) -> Iterator[tuple[str, redis.Redis]]:
    """A Redis server that takes clients of these authorities alone; its address, and a way in for the test."""
    port = free_ports(1)[0]
    files = ("--tls-cert-file", issued.certificate, "--tls-key-file", issued.key, "--tls-ca-cert-file", trusted)
    more = ("--tls-port", str(port), "--tls-replication", "yes", "--repl-diskless-sync-delay", "0")
    with redis_server(folder, options=(*files, *more)) as client:
        yield f"127.0.0.1:{port}", client


def said(log: str, event: str) -> list[dict[str, Any]]:
    return [one for one in map(json.loads, log.splitlines()) if one["event"] == event]


async def moves(client: httpx.AsyncClient, slots: str, group_id: int) -> None:
    answer = await client.post("/api/v1/slots/move", json={"slots": slots, "group_id": group_id})
    assert answer.is_success, answer.text
    async with asyncio.timeout(2 * LIMIT_SECONDS):
        while (await client.get("/api/v1/status")).json()["slots"]["moving"]:
            await asyncio.sleep(0.05)


async def hung_up_as_it_starts(topom: FiledTopom) -> dict[str, Any]:
    """Send SIGHUP to topom's own migrator, as soon as its Python is there; what the log says of its start."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not (found := said(topom.log(), "own_migrator_started")):
            await asyncio.sleep(0.01)
        process = psutil.Process(found[0]["pid"])
        while (line := process.cmdline())[:1] == ["/bin/sh"] or "migrator.process.child" not in line:
            await asyncio.sleep(0.001)
    process.send_signal(signal.SIGHUP)
    return found[0]


async def add_group(client: httpx.AsyncClient, group_id: int, server: str) -> httpx.Response:
    return await client.post("/api/v1/groups", json={"id": group_id, "servers": [server]})


async def shown_by(topom: FiledTopom, authorities: Authorities) -> str:
    """The name in the certificate that topom shows now."""
    port = int(topom.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=ServerTls(authorities.both).context())
    certificate: Any = writer.get_extra_info("peercert")
    writer.close()
    return str(certificate["subject"][0][0][1])


@pytest.mark.long
async def test_a_cluster_goes_over_to_another_authority_while_it_serves(
    tmp_path: Path, authorities: Authorities
) -> None:
    old, new, both = authorities.old, authorities.new, authorities.both
    first, second = old.issue("first"), new.issue("second")
    serves_old = authorities.of_topom(first, old.file)
    serves_new = authorities.of_topom(second, both)
    file = File(tmp_path / "topom.toml", token=OWN)
    file.write(tokens=[NOW], **serves_old, **authorities.of_servers("topom-old", old, old.file))
    servers = [
        tls_server(tmp_path / "1", old.issue("server-1"), both),
        tls_server(tmp_path / "2", old.issue("server-2"), both),
        tls_server(tmp_path / "3", new.issue("server-3"), new.file),
    ]
    with servers[0] as (one, _), servers[1] as (two, _), servers[2] as (three, third):
        async with filed_topom(tmp_path / "data", file, STREAM) as topom:
            topom.url = topom.url.replace("http", "https")
            proxy = Proxy(tmp_path / "proxy", topom)
            to_servers = authorities.of_servers("proxy-old", old, old.file)
            proxy.file.write(topom_tls_ca=old.file, **to_servers)
            proxy.process.start()
            try:
                async with authorities.client_of(topom) as client:
                    for group_id, server in ((1, one), (2, two)):
                        assert (await add_group(client, group_id, server)).is_success
                    await client.post("/api/v1/slots/assign", json={"slots": "0-15", "group_id": 1})
                    await proxy.until(lambda: bool(proxy.said("proxy_ready")))
                    keys = {f"key:{number}": f"{number}" for number in range(500)}
                    async with proxy.client() as user:
                        await user.mset(keys)
                    # topom's own migrator is started, and goes on.
                    moving = asyncio.create_task(moves(client, "0-3", 2))
                    own = await hung_up_as_it_starts(topom)
                    await moving

                    # What cannot be used changes nothing.
                    to_new = authorities.of_servers("topom-new", new, both)
                    for wrong, why in (
                        ({**serves_new, "tls_key": first.key}, "TLS of the API: the certificate in"),
                        ({**serves_new, "tls_ca": "/no/ca"}, "TLS with the other topoms: /no/ca cannot be read"),
                        ({**to_new, "redis_tls_ca": "/no/ca"}, "TLS with the Redis servers: /no/ca cannot be read"),
                    ):
                        file.write(tokens=[NOW, NEXT], **{**serves_old, **to_new, **wrong})
                        assert why in (await hang_up(topom, client))["refused"]
                    assert await shown_by(topom, authorities) == "first"
                    proxy.file.write(topom_tls_ca="/no/ca", **to_servers)
                    assert "TLS with topom: /no/ca cannot be read" in (await proxy.hang_up())["reason"]
                    proxy.file.write(topom_tls_ca=old.file, **{**to_servers, "redis_tls_key": first.key})
                    assert "TLS with the Redis servers: " in (await proxy.hang_up())["reason"]

                    # What can be used holds for all connections to come.
                    file.write(tokens=[NOW, NEXT], **serves_new, **to_new)
                    assert (await hang_up(topom, client))["refused"] == ""
                    assert await shown_by(topom, authorities) == "second"
                    proxy.file.write(
                        topom_tls_ca=new.file,
                        token=f"{NEW}-proxy",
                        **authorities.of_servers("proxy-new", new, both),
                    )
                    changed = {"topom_tls_ca", "token", "redis_tls_ca", "redis_tls_certificate", "redis_tls_key"}
                    assert set((await proxy.hang_up())["changed"]) == changed
                    file.write(tokens=[NEXT], **serves_new, **to_new)  # which ends the proxy's stream
                    await hang_up(topom, client)
                    await proxy.until(lambda: len(proxy.said("registered")) == 2)

                    assert (await add_group(client, 3, three)).is_success
                    await moves(client, "0-15", 3)
                    async with proxy.client() as user:
                        assert await user.mget([*keys]) == [value.encode() for value in keys.values()]
                    assert third.dbsize() >= len(keys)
                    assert said(topom.log(), "own_migrator_started") == [own], "it went on"
            finally:
                await proxy.process.stop()
            assert "Traceback" not in topom.log() + proxy.process.log.read_text()


class Migrator:
    """A migrator whose settings change while it runs."""

    process: ManagedProcess

    async def tell(self, **settings: Any) -> None:
        raise NotImplementedError

    def log(self) -> str:
        return self.process.log.read_text()

    async def until(self, event: str, number: int) -> dict[str, Any]:
        """Wait for so many events of a name; the last of them."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(found := said(self.log(), event)) < number:
                assert self.process.running, self.log()
                await asyncio.sleep(0.02)
        return found[-1]


class Filed(Migrator):
    """One that an operator runs."""

    def __init__(self, folder: Path, **always: Any) -> None:
        self.file = File(folder / "migrator.toml", **always)
        command = [sys.executable, "-m", "slotferry", "migrator", "--config", str(self.file.path)]
        self.process = ManagedProcess("migrator", command, folder / "migrator.log")

    async def tell(self, **settings: Any) -> None:
        self.file.write(**settings)
        if self.process.running:
            os.kill(self.process.pid, signal.SIGHUP)
        else:
            self.process.start()


class Told(Migrator):
    """One that gets its settings as topom's own does."""

    def __init__(self, folder: Path, **always: Any) -> None:
        self._always = always
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        self._pipe = os.open(pipe, os.O_RDWR)  # the test ends the process by a signal, and not by the pipe's end
        command = ["/bin/sh", "-c", f'exec "$@" < {pipe}', "sh", *PYTHON, "-m", "migrator.process.child"]
        self.process = ManagedProcess("migrator", command, folder / "migrator.log")

    async def tell(self, **settings: Any) -> None:
        os.write(self._pipe, json.dumps({**self._always, **settings}).encode() + b"\n")
        if not self.process.running:
            self.process.start()


@pytest.mark.long
@pytest.mark.parametrize("kind", [Filed, Told])
async def test_a_migrator_takes_other_certificates_for_topom(
    kind: type[Filed | Told], tmp_path: Path, authorities: Authorities
) -> None:
    old, new = authorities.old, authorities.new
    now, next_one = f"migrator:movers:{OLD}-mover", f"migrator:movers:{NEW}-mover"
    serves_old = authorities.of_topom(old.issue("first"), authorities.both)
    serves_new = authorities.of_topom(new.issue("second"), authorities.both)
    file = File(tmp_path / "topom.toml", token=OWN)
    file.write(tokens=[now], **serves_old)
    async with filed_topom(tmp_path / "data", file) as topom:
        topom.url = topom.url.replace("http", "https")
        mover = kind(tmp_path, topom=[topom.url], spool=str(tmp_path / "spool"))
        before = {"token": f"{OLD}-mover", "topom_tls_ca": old.file, **authorities.of_servers("a", old, old.file)}
        after = {"token": f"{NEW}-mover", "topom_tls_ca": new.file, **authorities.of_servers("b", new, new.file)}
        try:
            await mover.tell(**before)
            await mover.until("registered", 1)
            for wrong, why in (
                ({"topom_tls_ca": "/no/ca"}, "TLS with topom: /no/ca cannot be read"),
                ({"redis_tls_certificate": "/no/crt"}, "TLS with the Redis servers: /no/crt cannot be read"),
            ):
                refusals = len(said(mover.log(), "settings_refused"))
                await mover.tell(**{**after, **wrong})
                assert why in (await mover.until("settings_refused", refusals + 1))["reason"]
            async with authorities.client_of(topom) as client:
                file.write(tokens=[now, next_one], **serves_new)
                await hang_up(topom, client)
                await mover.tell(**after)
                reloaded = await mover.until("settings_reloaded", 1)
                assert {*after} - {"redis_tls"} == {*reloaded["changed"]}
                assert len(said(mover.log(), "registered")) == 1, "the stream goes on"
                file.write(tokens=[next_one], **serves_new)
                await hang_up(topom, client)
                await mover.until("registered", 2)
        finally:
            await mover.process.stop()
        assert "Traceback" not in topom.log() + mover.log()
