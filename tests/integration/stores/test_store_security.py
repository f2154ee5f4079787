"""Who may use the store, and TLS on the way to it."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from slots.tls import TlsError, client_context
from tests.certificates import Authority, Issued
from tests.integration.stores.servers import (
    EtcdServer,
    StoreServer,
    StoreTls,
    ZooKeeperServer,
    need_etcd,
    need_zookeeper,
    start_etcd,
    start_zookeeper,
    stop,
)
from topom.store import STATE, Store, Stored, StoreError
from topom.term.settings import TopomSettings
from topom.term.stores import open_store

USER, PASSWORD, PREFIX = "topom", "secret", "/shop/a"
LIMIT_SECONDS = 60.0
PAGE = Path(__file__).parents[3] / "docs" / "stores.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("security")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def client(authority: Authority) -> Issued:
    return authority.issue("", file="topom")


@pytest.fixture(scope="module")
def tls(authority: Authority) -> StoreTls:
    issued = authority.issue("store")
    return StoreTls(authority.file, issued.certificate, issued.key)


@pytest.fixture(scope="module")
def etcd(folder: Path, tls: StoreTls, client: Issued) -> Iterator[EtcdServer]:
    """It lets in only two users; one of them may use what is under :data:`PREFIX`."""
    need_etcd()
    (server,) = asyncio.run(start_etcd(folder, 1, tls))
    context = client_context(tls.authorities, client.certificate, client.key, True)
    with httpx.Client(base_url=f"https://{server.address}/v3/auth/", verify=context, trust_env=False) as http:
        for path, body in told_users():
            http.post(path, json=body).raise_for_status()
    yield server
    asyncio.run(stop([server]))


def told_users() -> list[tuple[str, dict[str, Any]]]:
    """The commands of docs/stores.md, in their order, as calls of etcd's API, with the names used here."""
    calls: list[tuple[str, dict[str, Any]]] = []
    for line in PAGE.read_text().split("```sh\netcdctl", 1)[1].split("```", 1)[0].splitlines():
        match line.removeprefix("etcdctl").split():
            case ["role", "add", name]:
                calls.append(("role/add", {"name": name}))
            case ["role", "grant-permission", name, "readwrite", "--prefix=true", prefix]:
                assert prefix == "/slotferry/shop/"
                first, after = (base64.b64encode(key.encode()).decode() for key in (f"{PREFIX}/", f"{PREFIX}0"))
                perm = {"permType": "READWRITE", "key": first, "range_end": after}
                calls.append(("role/grant", {"name": name, "perm": perm}))
            case ["user", "add", name]:
                password = PASSWORD if name == "slotferry" else "of root"
                calls.append(("user/add", {"name": name.replace("slotferry", USER), "password": password}))
            case ["user", "grant-role", name, role]:
                calls.append(("user/grant", {"user": name.replace("slotferry", USER), "role": role}))
            case ["auth", "enable"]:
                calls.append(("enable", {}))
            case other:
                raise AssertionError(f"the page has another command: {other}")
    return calls


@pytest.fixture(scope="module")
def zookeeper(folder: Path, tls: StoreTls) -> Iterator[ZooKeeperServer]:
    need_zookeeper()
    (server,) = asyncio.run(start_zookeeper(folder, 1, tls))
    yield server
    asyncio.run(stop([server]))


@pytest.fixture(params=["etcd", "zookeeper"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(kind)
    return found


@pytest.fixture
def settings(kind: str, server: StoreServer, tls: StoreTls, client: Issued) -> dict[str, Any]:
    return {
        "store": kind,
        "store_servers": server.address,
        "store_prefix": PREFIX,
        "store_user": USER,
        "store_password": PASSWORD,
        "store_tls": True,
        "store_tls_ca": tls.authorities,
        "store_tls_certificate": client.certificate,
        "store_tls_key": client.key,
        "store_timeout_seconds": 20.0,
    }


@asynccontextmanager
async def opened(settings: dict[str, Any]) -> AsyncIterator[Store]:
    store = open_store(TopomSettings.load(**settings))
    try:
        await store.open()
        yield store
    finally:
        await store.close()


@pytest.mark.long
async def test_with_certificates_user_and_password(settings: dict[str, Any], kind: str, server: StoreServer) -> None:
    async with asyncio.timeout(LIMIT_SECONDS), opened(settings) as store:
        stored = await store.book(STATE).read()
        await store.book(STATE).write(stored.version, 7, {"a": b"1"})
        leadership = await store.campaign("1" * 32, "http://127.0.0.1:1", 20.0)
        watch = asyncio.create_task(store.watch(7, 50.0))
        await asyncio.sleep(0.1)
        await store.book(STATE).write(7, 8, {"a": b"2"})
        assert await watch == 8
        await leadership.resign()
        if kind == "etcd":
            # A server that has restarted has forgotten its logins.
            await server.kill()
            server.start()
            await server.ready()
        assert await until_read(store) == Stored(8, {"a": b"2"})
        await store.book(STATE).write(8, 9, {"a": b"3"})


async def until_read(store: Store) -> Stored:
    while True:
        try:
            return await store.book(STATE).read()
        except StoreError:
            await asyncio.sleep(0.05)


async def test_another_password(settings: dict[str, Any]) -> None:
    async with opened(settings) as store:
        await store.leader()  # it has made what others are refused
    with pytest.raises(StoreError, match="store_password"):
        async with opened({**settings, "store_password": "wrong"}) as store:
            await store.book(STATE).read()


async def test_no_user(settings: dict[str, Any]) -> None:
    async with opened(settings) as store:
        await store.leader()  # it has made what others are refused
    with pytest.raises(StoreError, match="store_user"):
        async with opened({**settings, "store_user": "", "store_password": ""}) as store:
            await store.book(STATE).read()


async def test_a_server_that_is_not_trusted(settings: dict[str, Any], folder: Path) -> None:
    stranger = Authority(folder, "stranger")
    with pytest.raises(StoreError):
        async with opened({**settings, "store_tls_ca": stranger.file, "store_timeout_seconds": 1.0}):
            pytest.fail("it should not be talked to")


async def test_no_certificate(settings: dict[str, Any]) -> None:
    none = {"store_tls_certificate": "", "store_tls_key": "", "store_timeout_seconds": 1.0}
    with pytest.raises(StoreError):
        async with opened({**settings, **none}):
            pytest.fail("it should not let us in")


@pytest.mark.parametrize("kind", ["etcd"], indirect=True)
async def test_etcd_takes_no_names_from_certificates(settings: dict[str, Any], authority: Authority) -> None:
    named = authority.issue("named")
    files = {"store_tls_certificate": named.certificate, "store_tls_key": named.key}
    with pytest.raises(StoreError, match="subject is empty"):
        async with opened({**settings, **files}):
            pytest.fail("it should be refused")


async def test_files_that_cannot_be_read(settings: dict[str, Any], folder: Path) -> None:
    with pytest.raises(TlsError, match=r"nowhere\.pem"):
        open_store(TopomSettings.load(**{**settings, "store_tls_ca": str(folder / "nowhere.pem")}))


@pytest.mark.parametrize("kind", ["etcd"], indirect=True)
async def test_a_part_of_etcd_that_the_user_may_not_use(settings: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="store_prefix"):
        async with opened({**settings, "store_prefix": "/shop/b"}):
            pytest.fail("it should be refused")
