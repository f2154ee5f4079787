"""The cluster that clients are shown: ranges, who is in it, and the places that proxies announce."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.clusterview import SLOTS, ClusterView, Node
from proxy.settings import ProxySettings
from proxy.supervisor.announcing import Announcements
from slots.messages import channel
from slots.messages.control import ClusterAddress, Heard, Proxies, Registered
from slots.messages.message import ListedProxy, Product
from slots.settings import SettingsError


def node(proxy_id: int, port: int = 6380, tls_port: int = 0) -> Node:
    return Node(proxy_id, f"10.0.0.{proxy_id}", port, tls_port)


@given(st.sets(st.integers(1, 5000), min_size=1, max_size=300))
def test_every_slot_is_one_node_s_and_shares_differ_by_one_at_most(proxy_ids: set[int]) -> None:
    shares = ClusterView(node(1), map(node, proxy_ids)).shares(tls=False)
    assert [share.node.proxy_id for share in shares] == sorted(proxy_ids)
    covered = [slot for share in shares for slot in range(share.first, share.last + 1)]
    assert covered == list(range(SLOTS))
    sizes = [share.last - share.first + 1 for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_all_proxies_give_the_same_ranges_whatever_they_are_told_first() -> None:
    nodes = [node(number) for number in (3, 1, 2)]
    assert ClusterView(node(1), nodes).shares(False) == ClusterView(node(3), reversed(nodes)).shares(False)


def test_a_proxy_alone_has_all_slots() -> None:
    [share] = ClusterView(node(7)).shares(tls=False)
    assert (share.node, share.first, share.last) == (node(7), 0, SLOTS - 1)


def test_a_proxy_that_is_about_to_end_knows_itself_and_has_no_slots() -> None:
    view = ClusterView(node(1), [node(2)])
    assert [share.node for share in view.shares(tls=False)] == [node(2)]
    own = view.known(tls=False)[-1]
    assert own.node == node(1)
    assert own.last < own.first


def test_clients_with_tls_are_sent_where_there_is_tls() -> None:
    both, neither = node(1, 6380, 6390), node(2)
    view = ClusterView(both, [both, neither])
    assert [share.node for share in view.shares(tls=False)] == [both, neither]
    assert [share.node for share in view.shares(tls=True)] == [both]


class Proxy:
    def __init__(self, **settings: Any) -> None:
        self.changes = 0
        made = ProxySettings(cluster_mode=True, **settings)
        places = {"listen": "127.0.0.1:7001", "tls_listen": "127.0.0.1:7002"} if made.tls_listen else {}
        self.announcements = Announcements(made, lambda: {"listen": "127.0.0.1:7001", **places}, self._changed)

    def _changed(self) -> None:
        self.changes += 1


def test_it_announces_where_it_listens() -> None:
    proxy = Proxy(listen="127.0.0.1:0")
    assert proxy.announcements.registration() == ClusterAddress(host="127.0.0.1", port=7001, tls_port=0)


def test_or_where_it_is_told_that_clients_reach_it() -> None:
    proxy = Proxy(
        listen="0.0.0.0:0",
        tls_listen="127.0.0.1:0",
        tls_certificate="c",
        tls_key="k",
        cluster_announce_host="proxy-1.example",
        cluster_announce_tls_port=443,
    )
    assert proxy.announcements.own == Node(0, "proxy-1.example", 7001, 443)


def test_workers_are_told_of_the_others_once_a_change() -> None:
    proxy = Proxy()
    product = Product(name="p", number_of_slots=4, slot_function="crc32", databases=16)
    registered = Registered(
        proxy_id=2,
        product=product,
        cluster="c",
        start="s",
        heartbeat_seconds=1.0,
        stand_down_seconds=None,
        quiet_seconds=2.0,
    )
    proxy.announcements.registered(registered)
    heard = Proxies(proxies=[ListedProxy(1, "10.0.0.1", 6380, 0), ListedProxy(2, "127.0.0.1", 7001, 0)])
    proxy.announcements.heard(heard)
    assert proxy.changes == 2
    proxy.announcements.lost()
    proxy.announcements.heard(heard)
    proxy.announcements.heard(Heard(number=1))
    assert proxy.changes == 2
    assert proxy.announcements.message() == channel.Proxies(
        own=ListedProxy(2, "127.0.0.1", 7001, 0), nodes=heard.proxies
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"listen": "0.0.0.0:6380"}, "cluster_announce_host"), ({"listen": "", "unix_socket": "/x"}, "cluster_mode")],
)
def test_a_proxy_that_clients_could_not_be_sent_to_does_not_start(settings: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=f"Setting {named}"):
        ProxySettings.load(cluster_mode=True, **settings)
