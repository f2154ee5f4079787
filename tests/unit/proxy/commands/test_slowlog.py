"""The slow log keeps the newest requests, and few of them."""

from proxy.commands.slowlog import MOST_ENTRIES, SlowLog


def test_bounded_the_oldest_goes_when_a_new_one_has_no_room() -> None:
    # given the second of three workers
    log = SlowLog(1, 3)
    for number in range(MOST_ENTRIES + 2):
        log.note("get", float(number), 5, None, "a:1")
    kept = [int(entry.microseconds) for entry in log.newest()]
    assert kept == list(range(MOST_ENTRIES + 1, 1, -1))
    assert [entry.id for entry in log.newest(2)] == [1 + 3 * (MOST_ENTRIES + 1), 1 + 3 * MOST_ENTRIES]
