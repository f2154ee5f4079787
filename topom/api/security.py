"""The bearer token: a secret, asked for everywhere but at the health check.

While it is changed there are two of them: whoever has either is let in, so that nobody has to change at the same time
as anybody else.
"""

import hmac
import os
import secrets
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


def authorised(header: str | None, *tokens: str) -> bool:
    """Whether an ``Authorization`` header carries one of the tokens. Takes as long whatever the header says.

    An empty token lets nobody in.
    """
    scheme, _, given = (header or "").partition(" ")
    # All are compared, whichever matches.
    matches = [hmac.compare_digest(given.strip().encode(), token.encode()) for token in tokens if token]
    return any(matches) and scheme.lower() == "bearer"


def kept_token(path: Path) -> str:
    """The token in this file, which is made, readable by its owner only, when there is none.

    Raises:
        OSError: when the file can neither be read nor made.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        token = ""
    if not token:
        token = secrets.token_urlsafe(32)
        # Made under another name and renamed, so that a file without a token in it is never left behind.
        draft = path.with_name(path.name + ".new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        log.info("token_made", file=str(path))
    return token
