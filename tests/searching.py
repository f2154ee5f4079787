"""How many examples a test by chance looks at: a fifth, or all with ``--long`` and of tests that are named.

How long an example takes decides nothing: the machine may be busy.
"""

from hypothesis import HealthCheck, settings

USUAL = 100
"""The number of examples of a test that says nothing else."""
SHARE = 5

_whole = True


def choose(whole: bool) -> None:
    """Look at all examples, or at a fifth, from now on. Call it before the modules with the tests are imported."""
    global _whole
    _whole = whole
    settings.register_profile(
        "chosen", max_examples=examples(USUAL), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("chosen")


def examples(most: int) -> int:
    """How many of so many examples a test looks at."""
    return most if _whole else max(1, most // SHARE)


def whole() -> bool:
    """Whether a test looks at all that it can."""
    return _whole
