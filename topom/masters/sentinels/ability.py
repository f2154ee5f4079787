"""Whether Sentinels could replace a master that fails, as far as topom can tell. Pure.

A Sentinel elects nobody before ``quorum`` of them have found the master down, and before a majority of all has voted
for it. It says neither by itself; who waits for a master that never changes is to be told why.
"""

from collections.abc import Collection

from topom.masters.sentinels.errors import NobodyReplaces
from topom.masters.sentinels.votes import majority_of


def nobody_replaces(quorum: int, known: int, silent: Collection[str]) -> NobodyReplaces | None:
    """Why they could replace no master now; None if nothing is known to be in the way.

    Args:
        quorum: as the setting has it; 0 for a majority.
        known: how many Sentinels there are.
        silent: those that do not answer topom.
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
