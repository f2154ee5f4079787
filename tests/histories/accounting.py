"""Totals and queues of a whole run, too long to search but simple enough to account for.

A total is only counted up. No value comes twice, and a later increment has the higher value. A queue is only filled at
one end and emptied at the other, and no element comes out twice. Only an operation of unknown outcome may leave out a
value or lose an element.
"""

from collections import Counter
from collections.abc import Sequence

from tests.histories.operations import Operation, Outcome, Partition


def account(partition: Partition) -> list[str]:
    """What is wrong with a total or a queue, in words. Its last operation is the read at the end."""
    *operations, last = partition.history
    if last.replies is None:
        return []  # it could not be read, which is said elsewhere
    if partition.kind == "total":
        return account_total(operations, int(last.replies[0] or 0))
    return account_queue(operations, last.replies[0])


def account_total(increments: Sequence[Operation], stored: int) -> list[str]:
    """Gaps, doubles and reversals in the answers to INCR; ``stored`` is the value at the end."""
    answered = [(int(it.replies[0]), it) for it in increments if it.replies is not None]
    unknown = len(increments) - len(answered)
    wrong = []
    doubled = [value for value, times in Counter(value for value, _ in answered).items() if times > 1]
    if doubled:
        wrong.append(f"doubled: the values {doubled[:10]} were answered more than once")
    gaps = set(range(1, stored + 1)) - {value for value, _ in answered}
    if len(gaps) > unknown:
        wrong.append(
            f"gaps: {len(gaps)} values up to {stored} were answered to nobody, but only {unknown} increments are of "
            f"unknown outcome; the first are {sorted(gaps)[:10]}"
        )
    highest = max((value for value, _ in answered), default=0)
    if stored < highest:
        wrong.append(f"lost: {highest} was answered, but {stored} is stored at the end")
    latest = (0.0, 0)  # when the latest invocation was, of those with a lower value
    for value, it in sorted(answered, key=lambda pair: pair[0]):
        if it.answered < latest[0]:
            wrong.append(f"reversed: {value} was answered before the increment to {latest[1]} was sent")
        latest = max(latest, (it.invoked, value))
    return wrong


def account_queue(operations: Sequence[Operation], left: Sequence[bytes]) -> list[str]:
    """Elements of RPUSH and LPOP that were lost or doubled; ``left`` are those in the list at the end."""
    pushed: dict[bytes, Operation] = {}
    out: Counter[bytes] = Counter(left)
    unknown_pops = 0
    for it in operations:
        (asked,) = it.calls
        if asked.name == "RPUSH":
            pushed[asked.arguments[0]] = it
        elif it.replies is None:
            unknown_pops += 1
        elif it.replies[0] is not None:
            out[it.replies[0]] += 1
    wrong = []
    if doubled := [element for element, times in out.items() if times > 1]:
        wrong.append(f"doubled: {doubled[:10]} came out more than once")
    if strange := [element for element in out if element not in pushed]:
        wrong.append(f"{strange[:10]} came out, but nobody pushed them")
    lost = [element for element, it in pushed.items() if it.outcome is Outcome.ANSWERED and element not in out]
    if len(lost) > unknown_pops:
        wrong.append(
            f"lost: {len(lost)} elements whose push was acknowledged came out nowhere, but only {unknown_pops} pops "
            f"are of unknown outcome; the first are {lost[:10]}"
        )
    return wrong
