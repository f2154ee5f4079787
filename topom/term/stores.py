"""Opens the store that the settings name."""

from urllib.parse import quote

from slots.access import ServerTls
from topom.store import Store
from topom.store.sqlite import SqliteStore
from topom.term.settings import TopomSettings

STORE_FILE = "store.sqlite"
"""The file in the data folder."""


def open_store(settings: TopomSettings) -> Store:
    """The store, not yet opened.

    Raises:
        TlsError: the files of ``store_tls`` cannot be used.
    """
    if settings.store == "etcd":
        # Each module is loaded only if it is used: a topom with a file needs neither.
        from topom.store.etcd import EtcdStore
        from topom.store.etcd_gateway import EtcdGateway

        scheme = "https" if settings.store_tls else "http"
        gateway = EtcdGateway(
            [f"{scheme}://{address}" for address in settings.store_servers.split(",")],
            settings.store_user,
            settings.store_password.get_secret_value(),
            _tls(settings),
            settings.store_timeout_seconds,
        )
        return EtcdStore(gateway, root(settings))
    if settings.store == "zookeeper":
        from topom.store.zookeeper import ZooKeeperStore
        from topom.store.zookeeper_session import ZooKeeperAccess

        access = ZooKeeperAccess(
            settings.store_servers.split(","),
            settings.store_user,
            settings.store_password.get_secret_value(),
            _tls(settings),
            settings.store_timeout_seconds,
        )
        return ZooKeeperStore(access, root(settings))
    return SqliteStore(settings.data / STORE_FILE)


def root(settings: TopomSettings) -> str:
    """The prefix of all names in etcd or ZooKeeper, with a slash before each of its parts."""
    return settings.store_prefix or f"/slotferry/{quote(settings.product, safe='')}"


def _tls(settings: TopomSettings) -> ServerTls | None:
    tls = ServerTls(
        settings.store_tls_ca,
        settings.store_tls_certificate,
        settings.store_tls_key,
        settings.store_tls_verify_host,
    )
    return tls if settings.store_tls else None
