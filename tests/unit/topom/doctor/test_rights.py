import pytest

from tests.unit.topom.doctor.patients import found, names, server
from topom.doctor.rights import COMMANDS, RIGHTS, lacking, missing

DOCUMENTED = (
    "+@all -@admin -@dangerous +acl|getuser +acl|setuser +acl|users +acl|deluser +client +config|get +info +role "
    "+lastsave +keys +sort +sort_ro +flushall +flushdb +module|list +restore +slowlog +latency +slaveof "
    "+config|rewrite +psync +replconf"
)
"""The rules of docs/server-access.md for a user that is no administrator."""


@pytest.mark.parametrize("rules", ["+@all", DOCUMENTED, "-@all +@all", "allcommands"])
def test_rules_that_are_enough(rules: str) -> None:
    assert lacking(rules, "~*", "&*", {}) == ()


def test_every_right_that_is_taken_is_missed() -> None:
    for right in RIGHTS:
        assert lacking(f"+@all -{right.name}", "~*", "&*", {}) == (f"+{right.name}",)


def test_rules_that_are_not_enough() -> None:
    assert lacking(DOCUMENTED.replace("+client ", "+client|list "), "~*", "&*", {}) == ("+client|kill",)
    assert lacking("+@all -@scripting", "~*", "&*", {}) == ("+eval", "+evalsha")
    assert len(lacking("-@all", "~*", "&*", {})) == len(RIGHTS)


def test_keys_and_channels() -> None:
    assert lacking("+@all", "~app:*", "", {}) == ("~*", "&*")
    assert lacking("+@all", "allkeys", "allchannels", {}) == ()


def test_what_the_server_says_itself_counts() -> None:
    assert lacking("-@all", "~*", "&*", {right.name: True for right in RIGHTS}) == ()
    assert lacking("+@all", "~*", "&*", {"psync": False}) == ("+psync",)


def test_commands_that_are_gone() -> None:
    assert missing(dict.fromkeys(COMMANDS, True), (7, 0)) == ()
    assert missing({**dict.fromkeys(COMMANDS, True), "acl": False, "eval": False}, (7, 0)) == ("eval", "acl")
    # An old server has no ACL, and that is no fault of its own.
    assert missing({"acl": False, "hello": False}, (5, 0)) == ()
    assert missing({"acl": False}, None) == ()
    assert missing({}, (7, 0)) == ()


@pytest.mark.parametrize(
    ("lack", "rule"),
    [
        ("+client|kill", "rights-to-fence"),
        ("+restore", "rights-to-work"),
        ("~*", "rights-to-work"),
        ("+psync", "rights-to-follow"),
        ("+acl|users", "rights-to-tidy"),
    ],
)
def test_each_right_has_its_consequence(lack: str, rule: str) -> None:
    [one] = found(server(1, user="sf", lacking=(lack,)))
    assert one.rule == rule
    assert one.remedy.startswith(f"redis-cli -h 10.0.0.1 -p 6379 ACL SETUSER sf {lack}, ")


def test_rights_of_one_kind_are_one_finding() -> None:
    assert names(server(1, lacking=("+acl|getuser", "+client|list", "+psync"))) == [
        "rights-to-fence",
        "rights-to-follow",
    ]


def test_a_renamed_command() -> None:
    [one] = found(server(1, missing=("config", "acl")))
    assert one.seen == "it does not know CONFIG, ACL: renamed or switched off"
