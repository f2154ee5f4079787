"""Inline requests: words on a line, quoted as Redis's ``sdssplitargs`` reads them."""

SPACE = b" \t\r\n\x0b\x0c"
"""Bytes that are skipped between words, and that may follow a closing quote."""
ENDS = b" \t\r\n"
"""Bytes that end a word."""
NAMED = {ord("n"): b"\n", ord("r"): b"\r", ord("t"): b"\t", ord("b"): b"\b", ord("a"): b"\a"}
HEX_DIGITS = b"0123456789abcdefABCDEF"
METHODS = frozenset((b"get", b"head", b"post", b"put", b"patch", b"delete", b"options"))
"""Those of HTTP."""


def is_http(words: list[bytes]) -> bool:
    """Whether a line belongs to an HTTP request. It ends the connection, as in Redis the lines ``POST`` and ``Host:``
    do: else a page in a browser could have commands run that stand further below in its request.

    Redis runs no command of three words by one of these methods' names, either.
    """
    name = words[0].lower()
    return name in (b"post", b"host:") or (len(words) == 3 and name in METHODS and words[2].startswith(b"HTTP/"))


def split_inline(line: bytes) -> list[bytes]:
    """Words of an inline request.

    One pass from left to right, so that no line takes longer than its length (**bounded**).

    Raises:
        ValueError: where quotes are not closed, or something follows a closing quote.
    """
    # Redis takes it for a C string.
    line = line.partition(b"\0")[0]
    words: list[bytes] = []
    position = 0
    while True:
        while position < len(line) and line[position] in SPACE:
            position += 1
        if position == len(line):
            return words
        word = bytearray()
        while position < len(line) and line[position] not in ENDS:
            if line[position] in b"\"'":
                position = _quoted(line, position, word)
                break
            word.append(line[position])
            position += 1
        words.append(bytes(word))


def _quoted(line: bytes, position: int, word: bytearray) -> int:
    """Add the quoted text from ``position`` on to ``word``; give the position after the closing quote, which ends a
    word."""
    quote = line[position]
    position += 1
    while position < len(line):
        letter = line[position]
        if letter == quote:
            position += 1
            if position < len(line) and line[position] not in SPACE:
                raise ValueError("something follows a closing quote")
            return position
        if letter == ord("\\") and position + 1 < len(line) and quote == ord('"'):
            digits = line[position + 2 : position + 4]
            if line[position + 1] == ord("x") and len(digits) == 2 and all(digit in HEX_DIGITS for digit in digits):
                word.append(int(digits, 16))
                position += 4
            else:
                word += NAMED.get(line[position + 1], line[position + 1 : position + 2])
                position += 2
        elif line[position : position + 2] == b"\\'" and quote == ord("'"):
            word += b"'"
            position += 2
        else:
            word.append(letter)
            position += 1
    raise ValueError("unbalanced quotes")
