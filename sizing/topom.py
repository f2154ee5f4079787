"""Asks topom for the description of the cluster. Only the driver does so. Plain urllib is enough for it."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sizing.access import TOKEN, token
from sizing.errors import TopomFailed
from slots import bearer, topomtls
from slots.rules import SlotRule, rules_from_wire
from slots.tls import TlsError

MOST_BYTES = 64 << 20
"""The most bytes of an answer."""


@dataclass(frozen=True, slots=True)
class Product:
    """topom's description of the product.

    Attributes:
        name: of the product.
        function, number_of_slots, rules: how a key's slot is found.
        groups: by group id, its servers as host:port, the master first.
    """

    name: str
    function: str
    number_of_slots: int
    rules: tuple[SlotRule, ...]
    groups: dict[int, tuple[str, ...]]


def ask(url: str, seconds: float) -> Product:
    """The product of the topom at ``url``, as http://host:port. The token is the environment's.

    Raises:
        TopomFailed: it cannot be reached, does not take the token, or is not a topom.
    """
    status = get(url, "/api/v1/status", seconds)
    try:
        return Product(
            str(status["product"]),
            str(status["slot_function"]),
            int(status["number_of_slots"]),
            rules_from_wire(status["slot_rules"]),
            {
                int(group["id"]): tuple(str(server["address"]) for server in group["servers"])
                for group in status["groups"]
            },
        )
    except (KeyError, TypeError, ValueError):
        raise TopomFailed(f"what answers at {url} is no topom, or one of another version") from None


def get(url: str, path: str, seconds: float) -> Any:
    """An answer of the API. If ``url`` is several addresses, separated by commas, the first topom that answers gives
    it.

    Raises :class:`TopomFailed`.
    """
    *others, last = url.split(",")
    for one in others:
        with suppress(TopomFailed):
            return _get(one, path, seconds)
    return _get(last, path, seconds)


def _get(url: str, path: str, seconds: float) -> Any:
    try:
        request = urllib.request.Request(url + path, headers=bearer.header(token()))
    except bearer.TokenError as error:
        raise TopomFailed(f"{TOKEN} cannot be used: {error}") from None
    # No proxy of the environment, and no redirection: only topom may get the token.
    try:
        by_tls = urllib.request.HTTPSHandler(context=topomtls.from_environment().context_of(url))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), by_tls, _NoRedirection)
        with opener.open(request, timeout=seconds) as answer:
            return json.loads(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise TopomFailed(
                f"topom at {url} does not accept the token; set an operator's, or a viewer's, as {TOKEN} in the "
                "environment"
            ) from None
        raise TopomFailed(f"topom at {url} answers {path} with HTTP status {error.code}") from None
    except ValueError:
        raise TopomFailed(f"what answers at {url} is no topom: its answer is no JSON") from None
    except TlsError as error:
        raise TopomFailed(str(error)) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        why = topomtls.REMEDIES.why(error) or f"{reason}; check the option topom"
        if isinstance(reason, http.client.BadStatusLine | ConnectionResetError | BrokenPipeError):
            why = f"{why}; {topomtls.REMEDIES.unanswered(url)}"
        raise TopomFailed(f"topom cannot be reached at {url}: {why}") from None


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
