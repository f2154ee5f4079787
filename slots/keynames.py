"""Keys as people read them: a key may have any bytes."""


def readable(key: bytes, most: int = 60) -> str:
    """A key's name as text on one line, at most ``most`` characters. Bytes that are not printable text are escaped."""
    text = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in key.decode(errors="backslashreplace")
    )
    return text if len(text) <= most else f"{text[: most - 1]}…"
