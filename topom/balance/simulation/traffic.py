"""The load of each slot at each time: by Zipf's law, up and down within a day, wandering, and with flash crowds."""

import math
import random

from topom.balance.simulation.scenario import Scenario

DAY_HOURS = 24.0
PULL = 0.02
"""Which part of the way back a wandering load goes in an hour. So it stays within a few times its mean."""


class Traffic:
    """The load of a scenario's slots, in requests a second of 1,000,000 in all at first."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._chance = random.Random(scenario.seed)
        ranked = [1 / rank**scenario.exponent for rank in range(1, scenario.slots + 1)]
        self._chance.shuffle(ranked)
        self._most = scenario.largest * 1e6 / scenario.groups
        self._mean = _capped(ranked, 1e6, self._most)
        self._phase = [self._chance.random() * 2 * math.pi for _ in ranked]
        self._off = [0.0] * scenario.slots
        self._crowds = [
            (one, one.slot if one.slot >= 0 else self._chance.randrange(scenario.slots)) for one in scenario.crowds
        ]

    def step(self, hours: float) -> None:
        """Let loads wander for a while."""
        sigma, kept = self._scenario.wander * math.sqrt(hours), (1 - PULL) ** hours
        if sigma:
            gauss = self._chance.gauss
            self._off = [off * kept + gauss(0.0, sigma) for off in self._off]

    def rates(self, hour: float) -> list[float]:
        """Requests a second of each slot."""
        drift, turn, most = self._scenario.drift, 2 * math.pi * hour / DAY_HOURS, self._most
        sin, exp = math.sin, math.exp
        found = [
            min(most, mean * (1 + drift * sin(turn + phase)) * exp(off))
            for mean, phase, off in zip(self._mean, self._phase, self._off, strict=True)
        ]
        for crowd, slot in self._crowds:
            if crowd.at <= hour < crowd.at + crowd.hours:
                found[slot] = min(most, found[slot] * crowd.times)
        return found


def _capped(parts: list[float], total: float, most: float) -> list[float]:
    """Numbers in proportion to ``parts``, together ``total``, none above ``most`` if that is possible."""
    scale = total / math.fsum(parts)
    for _ in range(50):
        capped = [min(most, part * scale) for part in parts]
        missing = total - math.fsum(capped)
        free = math.fsum(one for one in capped if one < most)
        if missing < total * 1e-9 or not free:
            break
        scale *= 1 + missing / free
    return capped
