"""The log of notable requests keeps the newest, and few. topom is told of all; SLOWLOG shows slow ones."""

import base64
import hashlib

from proxy.commands.notable import MOST_ENTRIES, NotableLog
from proxy.engine.statistics import Noted
from slots.messages.channel import Load
from slots.messages.load import MOST_NOTABLE

SLOW = Noted("slow", "get", 3, 5, b"key", 3, "alice", "", b"", "a:1", 20_000.5, True, 30, 70, 0)


def test_bounded_the_oldest_goes_when_a_new_one_has_no_room() -> None:
    # given the second of three workers
    log = NotableLog(1, 3)
    for number in range(MOST_ENTRIES + 2):
        log.note(SLOW._replace(microseconds=float(number)))
    kept = [int(entry.microseconds) for entry in log.newest()]
    assert kept == list(range(MOST_ENTRIES + 1, 1, -1))
    assert [entry.id for entry in log.newest(2)] == [1 + 3 * (MOST_ENTRIES + 1), 1 + 3 * MOST_ENTRIES]
    taken = [int(each.microseconds) for each in log.take()]
    assert taken == list(range(MOST_ENTRIES + 2 - MOST_NOTABLE, MOST_ENTRIES + 2))


def test_each_is_told_once_with_the_time_since() -> None:
    now = [10.0]
    log = NotableLog(clock=lambda: now[0])
    log.note(SLOW)
    now[0] += 1.5
    log.note(SLOW._replace(why="big_reply", slow=False, bytes_out=2_000_000))
    now[0] += 0.25
    first, second = log.take()
    assert first == (
        *("slow", "get", 3, 5, base64.b64encode(b"key").decode(), 3, "alice", "", "a:1", 1.75, 20_000.5, 30, 70, 0),
    )
    assert (second.why, second.seconds, second.bytes_out) == ("big_reply", 0.25, 2_000_000)
    assert log.take() == []
    assert len(log) == 1, "SLOWLOG shows those that are slow"
    log.reset()
    assert len(log) == 0


def test_hashes_stand_for_keys_and_slowlog_shows_none() -> None:
    log = NotableLog(hash_keys=True)
    key = b"k" * 128
    log.note(SLOW._replace(key=key, length=300))
    log.note(SLOW._replace(key=b"", length=0))
    expected = hashlib.sha256(key).hexdigest()[:16].encode()
    assert [(base64.b64decode(each.key), each.length) for each in log.take()] == [(expected, 16), (b"", 0)]
    assert [(entry.key, entry.key_bytes) for entry in log.newest()] == [("", 0)] * 2


def test_whatever_a_command_is_called_fits_the_message() -> None:
    log = NotableLog()
    for name in ("module.\udcff\n" + "x" * 300, ""):
        log.note(SLOW._replace(command=name))
    told = Load(notable=log.take())
    assert [each.command for each in told.notable] == ["module.??" + "x" * 55, "?"]
