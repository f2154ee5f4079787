"""The measure of replies: split anywhere, malformed, nested."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine.resp import measure_replies


def reply_of(protocol: int) -> st.SearchStrategy[bytes]:
    simple = st.one_of(
        st.sampled_from([b"+OK\r\n", b"-ERR no\r\n", b":-12\r\n", b"$-1\r\n", b"*-1\r\n", b"+\r\n", b"*0\r\n"]),
        st.binary(max_size=50).map(lambda value: b"$%d\r\n%b\r\n" % (len(value), value)),
    )
    if protocol == 3:
        simple = st.one_of(
            simple,
            st.sampled_from(
                [b"_\r\n", b"#t\r\n", b",1.5\r\n", b"(123456789012345678901\r\n", b"=7\r\ntxt:abc\r\n", b"!2\r\nno\r\n"]
            ),
        )

    def nest(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
        arrays = st.lists(inner, max_size=4).map(lambda items: b"*%d\r\n%b" % (len(items), b"".join(items)))
        if protocol == 2:
            return arrays
        pairs = st.lists(st.tuples(inner, inner), max_size=3)
        return st.one_of(
            arrays,
            st.lists(inner, max_size=3).map(lambda items: b"~%d\r\n%b" % (len(items), b"".join(items))),
            pairs.map(lambda items: b"%%%d\r\n%b" % (len(items), b"".join(a + b for a, b in items))),
            st.tuples(pairs, inner).map(
                lambda both: b"|%d\r\n%b%b" % (len(both[0]), b"".join(a + b for a, b in both[0]), both[1])
            ),
        )

    return st.recursive(simple, nest, max_leaves=12)


@pytest.mark.parametrize("protocol", [2, 3])
@given(data=st.data())
def test_replies_end_where_they_end_however_they_arrive(protocol: int, data: st.DataObject) -> None:
    replies = data.draw(st.lists(reply_of(protocol), min_size=1, max_size=5))
    stream = b"".join(replies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert measure_replies(pieces) == ([len(reply) for reply in replies], 0)
    assert measure_replies([bytes([byte]) for byte in stream]) == ([len(reply) for reply in replies], 0)


@given(st.binary(max_size=200))
def test_any_bytes_are_measured_or_refused(stream: bytes) -> None:
    try:
        lengths, rest = measure_replies([stream])
    except ValueError:
        return
    assert sum(lengths) + rest == len(stream)
