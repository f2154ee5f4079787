"""The hash by which strings are remembered is the one it is called."""

from proxy.engine.tags import siphash


def test_siphash_128_is_the_reference_implementation_s() -> None:
    # Vectors of SipHash's reference implementation: key 00 01 .. 0f, message 00 01 .. of so many bytes.
    vectors = {
        8: "3b62a9ba6258f5610f83e264f31497b4",
        15: "5493e99933b0a8117e08ec0f97cfc3d9",
        63: "5150d1772f50834a503e069a973fbd7c",
    }
    for length, expected in vectors.items():
        assert siphash(bytes(range(16)), bytes(range(length))).hex() == expected
