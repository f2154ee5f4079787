"""The client for other topoms follows its certificates, and requests that are under way go on."""

import shutil
from pathlib import Path

import pytest

from slots import tls
from slots.access import ServerTls
from tests.certificates import Authority
from tests.unit.topom.operators import eventually
from topom.term import peers as peers_module
from topom.term.peers import Peers


async def test_a_renewed_certificate_is_used_for_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_SECONDS", 0.0)
    authority = Authority(tmp_path)
    issued = authority.issue("topom")
    peers = Peers(ServerTls(authority.file, issued.certificate, issued.key).certificates())
    first = peers.http
    assert peers.http is first
    renewed = authority.issue("renewed")
    shutil.copy(renewed.key, issued.key)
    assert peers.http is first, "the former pair is kept while the files are none"
    shutil.copy(renewed.certificate, issued.certificate)
    second = peers.http
    assert second is not first
    assert not first.is_closed, "a request may be under way"
    again = authority.issue("again")
    shutil.copy(again.key, issued.key)
    shutil.copy(again.certificate, issued.certificate)
    third = peers.http
    await peers.close()
    assert [one.is_closed for one in (first, second, third)] == [True, True, True]


async def test_clients_of_earlier_certificates_are_closed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often certificates are renewed meanwhile."""
    monkeypatch.setattr(tls, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(peers_module, "FORMER_SECONDS", 0.5)
    authority = Authority(tmp_path)
    issued = authority.issue("topom")
    peers = Peers(ServerTls(authority.file, issued.certificate, issued.key).certificates())
    former = []
    for number in range(3):
        former.append(peers.http)
        renewed = authority.issue(f"renewed-{number}")
        shutil.copy(renewed.key, issued.key)
        shutil.copy(renewed.certificate, issued.certificate)
    last = peers.http
    assert len({*former, last}) == 4
    await eventually(lambda: all(one.is_closed for one in former))
    assert not last.is_closed
    await peers.close()
