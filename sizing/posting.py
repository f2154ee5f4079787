"""Tells topom the sizes of slots, for plans by bytes, and the biggest prefixes, which its page shows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sizing.errors import SizingError
from slots import bearer, topomtls
from slots.keynames import readable
from slots.tls import TlsError

if TYPE_CHECKING:
    from sizing.outcome import Summary
    from sizing.tables import Results

POST_SECONDS = 60.0
"""Limit of the request."""
BIGGEST = 10
"""Keys of each slot that topom keeps at most."""
LONGEST_KEY = 256
"""Characters of a key's name that topom keeps."""
PREFIXES = 100
"""Prefixes that topom keeps at most."""
LONGEST_PREFIX = 60
"""Characters of a prefix that topom keeps."""


class PostError(SizingError):
    """topom did not take the sizes. The message says why and what to do; the token is never in it."""


def body(summary: Summary, results: Results, of_files: bool) -> dict[str, Any]:
    """The body of ``POST /api/v1/sizes``.

    Files are never called complete, because it is not known whether they belong to all masters. In a complete
    measurement, topom takes slots that are not named for empty.
    """
    from pyspark.sql import functions as f

    biggest: dict[int, list[dict[str, Any]]] = {}
    rows = results.table("biggest").where(f.col("rank_in_slot") <= BIGGEST).orderBy("slot", "rank_in_slot")
    for row in rows.toLocalIterator():
        entry = {
            "key": readable(bytes(row["key"]), LONGEST_KEY),
            "database": row["database"],
            "type": row["type"],
            "bytes": row["bytes"],
        }
        biggest.setdefault(row["slot"], []).append(entry)
    return {
        "taken_at": summary.taken_at,
        "seconds": summary.seconds,
        "complete": summary.complete and not of_files,
        "missing": [{"server": entry.place, "reason": entry.reason} for entry in summary.missing],
        "sampled": summary.sampled,
        "slots": [
            {"slot": slot.slot, "bytes": slot.bytes, "keys": slot.keys, "biggest": biggest.get(slot.slot, [])}
            for slot in summary.slots
        ],
        "prefixes": [
            {
                "depth": row["depth"],
                "prefix": readable(bytes(row["prefix"]), LONGEST_PREFIX),
                "keys": row["keys"],
                "bytes": row["bytes"],
            }
            # Of equals the shorter one comes first, so that none is told without what it is in.
            for row in results.table("prefixes").orderBy(f.desc("bytes"), "depth", "prefix").limit(PREFIXES).collect()
        ],
    }


def post(topom: str, token: str, measurement: dict[str, Any]) -> None:
    """Send it. If ``topom`` is several addresses, separated by commas, the first topom that takes it gets it.

    Raises:
        PostError: topom cannot be reached, or does not take it.
    """
    *others, last = topom.split(",")
    for one in others:
        # The same measurement may be sent twice.
        with suppress(PostError):
            _post(one, token, measurement)
            return
    _post(last, token, measurement)


def _post(topom: str, token: str, measurement: dict[str, Any]) -> None:
    import httpx

    try:
        answer = httpx.post(
            f"{topom.rstrip('/')}/api/v1/sizes",
            json=measurement,
            headers=bearer.header(token),
            timeout=POST_SECONDS,
            trust_env=False,
            verify=topomtls.from_environment().context_of(topom) or False,
        )
    except (TlsError, bearer.TokenError) as error:
        raise PostError(str(error)) from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeEncodeError, OSError) as error:  # some of TLS are no HTTPError
        reason = type(error).__name__ if isinstance(error, UnicodeEncodeError) else str(error) or type(error).__name__
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError):
            reason = f"{reason.rstrip('.')}; {topomtls.REMEDIES.unanswered(topom)}"
        raise PostError(f"topom at {topom} did not answer: {topomtls.REMEDIES.why(error) or reason}") from None
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise PostError(f"topom at {topom} does not accept the token; give it by SLOTFERRY_TOKEN")
    if not answer.is_success:
        try:
            said = str(answer.json()["message"])
        except (ValueError, KeyError, TypeError):
            said = f"it answered with HTTP status {answer.status_code}"
        raise PostError(f"topom at {topom} did not take the sizes: {said}")
