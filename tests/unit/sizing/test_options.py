"""Options of the data source: what they take, and the errors for what they do not take."""

from dataclasses import fields

import pytest

from sizing.errors import OptionError
from sizing.options import ReadOptions, parse_numbers
from slots.rules import SlotRule

SERVERS = {"servers": "10.0.0.1:6379, [::1]:6380"}


def test_defaults_and_names_in_any_case() -> None:
    options = ReadOptions.of({"SERVERS": SERVERS["servers"], "Scan_Count": "50", "MODE": "permissive"})
    assert options.servers == ("10.0.0.1:6379", "[::1]:6380")
    assert (options.scan_count, options.mode) == (50, "PERMISSIVE")
    assert options == ReadOptions(servers=options.servers, scan_count=50, mode="PERMISSIVE")


def test_every_option_is_documented_and_can_be_read() -> None:
    given = {
        "columns": "slot, bytes", "types": "hash,zset", "slots": "0-3,700", "databases": "0", "samples": "0",
        "sample_fraction": "0.25", "max_keys_per_second": "1000", "partitions_per_server": "8", "function": "crc16",
        "number_of_slots": "16384", "read": "master", "mode": "failfast", "scan_count": "10",
        "milliseconds_per_call": "0.1", "connect_timeout_seconds": "1.5", "timeout_seconds": "2",
        "rules": '[{"pattern": "bull:(*):*"}]', **SERVERS,
    }  # fmt: skip
    assert given.keys() | {"topom"} == {field.name for field in fields(ReadOptions)}
    options = ReadOptions.of(given)
    assert (options.columns, options.slots) == (("slot", "bytes"), frozenset({0, 1, 2, 3, 700}))
    assert options.rules == (SlotRule("bull:(*):*"),)
    assert all(field.metadata["doc"] for field in fields(ReadOptions))
    assert ReadOptions.of({"topom": "http://10.0.0.1:8380/"}).topom == "http://10.0.0.1:8380"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("scan_count", "many", "a whole number from 10"),
        ("scan_count", "9", "a whole number from 10"),
        ("partitions_per_server", "3", "a power of two from 1 to 64"),
        ("sample_fraction", "0", "above 0 up to 1"),
        ("sample_fraction", "nan", "above 0 up to 1"),
        ("max_keys_per_second", "-1", "0 or more"),
        ("timeout_seconds", "inf", "seconds above 0"),
        ("mode", "DROPMALFORMED", "FAILFAST or PERMISSIVE"),
        ("read", "replica", "replica-first or master"),
        ("function", "sha1", "crc32"),
        ("slots", "5-2", "from 0 to 16383"),
        ("databases", "all", "numbers and ranges"),
        ("servers", "10.0.0.1", "host:port,host:port"),
        ("number_of_slots", "1000", "a power of two"),
        ("rules", "bull", "a JSON list of slot rules"),
        ("rules", "{}", "a JSON list of slot rules"),
    ],
)
def test_what_cannot_be_used_is_said_with_its_name_and_what_it_takes(name: str, text: str, said: str) -> None:
    with pytest.raises(OptionError, match=f"^{name} is '{text}', but has to be .*{said}"):
        ReadOptions.of({**SERVERS, name: text})


@pytest.mark.parametrize("given", [{}, {**SERVERS, "topom": "http://10.0.0.1:8380"}])
def test_there_is_one_way_to_find_servers(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"either topom, .* or servers"):
        ReadOptions.of(given)


def test_an_unknown_option_is_refused_with_those_there_are() -> None:
    with pytest.raises(OptionError, match=r"scancount is no option of slotferry; there are .*scan_count"):
        ReadOptions.of({**SERVERS, "scancount": "5"})


@pytest.mark.parametrize("name", ["password", "Token", "user"])
def test_secrets_are_no_options_and_are_not_repeated(name: str) -> None:
    with pytest.raises(OptionError, match="SLOTFERRY_SIZING_REDIS_PASSWORD") as refused:
        ReadOptions.of({**SERVERS, name: "a secret"})
    assert "a secret" not in str(refused.value)


def test_a_url_with_credentials_is_refused_without_repeating_it() -> None:
    with pytest.raises(OptionError, match="without credentials") as refused:
        ReadOptions.of({"topom": "http://user:secret@10.0.0.1:8380"})
    assert "secret" not in str(refused.value)


def test_numbers_and_ranges() -> None:
    assert parse_numbers("7, 1-3", 8) == frozenset({1, 2, 3, 7})
    with pytest.raises(ValueError, match="from 0 to 7"):
        parse_numbers("8", 8)
