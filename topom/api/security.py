"""The bearer token: a secret that everything except the health check needs.

While the token is changed there are two: a client with either gets in, so that topoms, proxies and clients need not
change at the same time.
"""

import hmac
import os
import secrets
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


def authorised(header: str | None, *tokens: str) -> bool:
    """Whether an ``Authorization`` header carries one of the tokens. It takes equally long whatever the header says.

    An empty token lets no client in.
    """
    scheme, _, given = (header or "").partition(" ")
    # All tokens are compared, even after one matches.
    matches = [hmac.compare_digest(given.strip().encode(), token.encode()) for token in tokens if token]
    return any(matches) and scheme.lower() == "bearer"


def kept_token(path: Path) -> str:
    """The token in this file; if there is none, it is made, and only the owner may read the file.

    Raises:
        OSError: the file can neither be read nor made.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        token = ""
    if not token:
        token = secrets.token_urlsafe(32)
        # The file is made under another name and renamed, so that no file without a token is ever left.
        draft = path.with_name(path.name + ".new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        log.info("token_made", file=str(path))
    return token
