"""Ids of stream entries, as numbers that compare as the server compares them."""

StreamId = tuple[int, int]

MOST = 2**64 - 1
"""The largest number in either half of an id."""

LAST: StreamId = (MOST, MOST)
"""The last id there can be."""


def parse_id(text: bytes) -> StreamId:
    """The two numbers of ``milliseconds-sequence``, the form in which servers write ids."""
    milliseconds, _, sequence = text.partition(b"-")
    return int(milliseconds), int(sequence)


def write_id(entry: StreamId) -> bytes:
    """The id in the form that the server reads."""
    return b"%d-%d" % entry


def id_after(entry: StreamId) -> StreamId:
    """The smallest id after this one, since exclusive ranges need Redis 6.2. There is none after the last."""
    milliseconds, sequence = entry
    if sequence < MOST:
        return milliseconds, sequence + 1
    return milliseconds + 1, 0
