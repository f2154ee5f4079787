"""How long the wait before another try is, and that no code waits in its own way."""

import random
import re
from pathlib import Path

from slots.backoff import Backoff

ROOT = Path(__file__).parents[3]


def test_steps_double_up_to_the_limit_and_a_wait_is_any_part_of_one() -> None:
    random.seed(1)
    waits = [[wait.next() for _ in range(8)] for wait in (Backoff(0.1, 2.0) for _ in range(400))]
    for place, step in enumerate((0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0)):
        found = [row[place] for row in waits]
        assert 0 <= min(found) < 0.1 * step, "full jitter: from nothing"
        assert 0.9 * step < max(found) <= step, "to all of the step"
    wait = Backoff(0.1, 2.0)
    for _ in range(5000):
        assert wait.next() <= 2.0
    wait.reset()
    assert wait.next() <= 0.1


def test_nobody_makes_a_backoff_by_hand() -> None:
    """Only the compiled engine does it: it counts its connections' steps in C."""
    by_hand = re.compile(r"\*\s*random\.uniform|2(\.0)? \*\* min\(")
    found = [
        str(path.relative_to(ROOT))
        for folder in ("topom", "proxy", "migrator", "slotferry", "sizing")
        for path in (ROOT / folder).rglob("*.py")
        if by_hand.search(path.read_text())
    ]
    assert found == ["proxy/worker/replicas/replicas.py"], "which looks at regular times, a little spread"
