"""Paths of URLs that lead where they say. What sends a request resolves the segments ``.`` and ``..``, as browsers do:
a name of these would lead to something else."""

from urllib.parse import quote


def literal(text: str, safe: str = "/") -> str:
    """A path, or with ``safe`` a part of one, quoted so that it arrives as this very text."""
    segments = quote(text, safe).split("/")
    return "/".join(segment.replace(".", "%2E") if segment in (".", "..") else segment for segment in segments)
