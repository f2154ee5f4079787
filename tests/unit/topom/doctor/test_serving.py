from dataclasses import replace

import pytest

from tests.unit.topom.doctor.patients import cluster, found, names, server


def test_a_server_that_is_silent() -> None:
    [one] = found(server(3, silent="no answer within 1 s"))
    assert (one.rule, one.subject) == ("server-silent", "server 10.0.0.3:6379 (master of group 2)")
    assert one.seen == "it does not answer topom: no answer within 1 s"
    assert one.remedy.endswith("redis-cli -h 10.0.0.3 -p 6379 PING")


def test_a_node_of_a_redis_cluster_has_one_database_for_that() -> None:
    assert names(server(1, cluster_enabled=1, config={"databases": "1"})) == ["cluster-enabled"]


def test_fewer_databases_than_clients_may_use() -> None:
    [one] = found(server(1, config={"databases": "8"}))
    assert (one.rule, one.seen) == ("too-few-databases", "it has 8 databases, and clients may use 16")
    assert names(server(1, config={"databases": "17"})) == []


def test_a_server_without_a_password_is_open_to_other_machines_only() -> None:
    assert names(server(1, open=True)) == ["no-password"]
    assert names(server(1, open=None)) == []
    here = replace(server(1, open=True), address="127.0.0.1:6379")
    assert "no-password" not in names(servers=(here, *cluster().servers[1:]))


def test_many_clients() -> None:
    assert names(server(1, connected_clients=8001)) == ["clients-near-limit"]
    assert names(server(1, connected_clients=8000)) == []
    assert names(server(1, connected_clients=8001, maxclients=None)) == []


def test_a_server_that_lets_in_its_own_machine_only() -> None:
    denied = "DENIED Redis is running in protected mode because protected mode is enabled and no password is set " * 9
    [one] = found(server(3, silent=denied))
    assert one.rule == "protected-mode"
    assert one.remedy.startswith("on its machine: redis-cli -p 6379 CONFIG SET requirepass")


def test_a_long_reason_is_cut() -> None:
    [one] = found(server(3, silent="x" * 1000))
    assert len(one.seen) < 400


@pytest.mark.parametrize(
    "why",
    [
        "Authentication required.",
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair or user is disabled.",
        "invalid username-password pair or user is disabled.",
        "invalid password",
    ],
)
def test_a_refused_login_is_no_silence(why: str) -> None:
    [one] = found(server(3, silent=why))
    assert one.rule == "login-refused"
    assert why in one.seen
    assert "redis_password" in one.remedy
