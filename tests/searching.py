"""How many examples a test by chance looks at: a fifth, or all with ``--long`` and of tests that are named."""

from hypothesis import settings

USUAL = 100
"""The number of examples of a test that says nothing else."""
SHARE = 5

_whole = True


def choose(whole: bool) -> None:
    """Look at all examples, or at a fifth, from now on. Call it before the modules with the tests are imported."""
    global _whole
    _whole = whole
    if not whole:
        settings.register_profile("a fifth", max_examples=examples(USUAL))
        settings.load_profile("a fifth")


def examples(most: int) -> int:
    """How many of so many examples a test looks at."""
    return most if _whole else max(1, most // SHARE)
