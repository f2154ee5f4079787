"""Whether Sentinels could replace a master that fails, by what topom knows. Pure.

A Sentinel elects no server before ``quorum`` Sentinels have found the master down, and a majority of all has voted for
that Sentinel. Sentinels do not report what keeps them from it, so topom tells operators why a failed master is not
replaced.
"""

from collections.abc import Collection

from topom.masters.sentinels.errors import NobodyReplaces
from topom.masters.sentinels.votes import majority_of


def nobody_replaces(quorum: int, known: int, silent: Collection[str]) -> NobodyReplaces | None:
    """Why Sentinels could replace no master now; None if no reason is known.

    Args:
        quorum: the setting; 0 for a majority.
        known: how many Sentinels there are.
        silent: the Sentinels that do not answer topom.
    """
    if not known:
        return NobodyReplaces(
            "no Sentinel is known, so nobody replaces a master that fails", '"slotferry sentinel add" three or more'
        )
    if quorum > known:
        return NobodyReplaces(
            f"no master that fails is replaced: sentinel_quorum is {quorum}, and there are {known} Sentinels",
            "set it to 0 (a majority) and restart topom, or add Sentinels",
        )
    needed = max(quorum, majority_of(known))
    if known - len(silent) < needed:
        return NobodyReplaces(
            f"no master that fails is replaced: of {known} Sentinels {needed} have to agree, and {len(silent)} do not "
            f"answer topom ({', '.join(sorted(silent))})",
            "bring them back, or remove those that are gone for good",
        )
    return None
