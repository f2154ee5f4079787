"""The client for other topoms follows its certificates, and requests that are under way go on."""

import shutil
from pathlib import Path

import pytest

from slots import tls
from slots.access import ServerTls
from tests.certificates import Authority
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
    await peers.close()
    assert (first.is_closed, second.is_closed) == (True, True)
