"""The operator's verbs from the command line to the API and back, with a topom that is played by a function."""

import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml
from rich.console import Console
from typer.testing import CliRunner

from slotferry import __version__, output
from slotferry.main import app
from slotferry.operator.migration import say_migration
from slotferry.operator.sizes import MOST_PREFIXES
from slotferry.operator.status import next_step
from tests.unit.slotferry.operator.answers import (
    ANSWERS,
    BATCH,
    EVENT,
    MIGRATION,
    PLACEMENT,
    PROXY,
    PROXY_RELOADED,
    SERVERS_OF_GROUPS,
    SLOTS,
    STATUS,
    USERS,
    because,
)
from tests.unit.slotferry.played_topom import play_topom

VERBS: list[tuple[str, str, str]] = [
    ("status", "status", "topom: placement: 2 of 3 steps are done"),
    ("status", "status", "127.0.0.1:6378"),
    ("doctor", "doctor", "looked at 8 servers: nothing will hurt"),
    ("load", "load", "1 of 2 proxies tell their load"),
    ("load", "load", "user:[7]"),
    ("load --all-slots --proxies", "load", "70,000"),
    ("load --notable", "load/notable", "user:[red]7"),
    ("load --notable --rows 3", "load/notable?most=3", "hash 0a1b"),
    ("load --notable", "load/notable?most=10", "20,000 elements"),
    ("load --notable", "load/notable", "1,234.6 ms"),
    ("load --notable", "load/notable", "3.0 MiB"),
    ("load --notable", "load/notable", "5.0 MiB"),
    ("load --notable", "load/notable", "10.0.0.7:51234"),
    ("events", "events", "slots 0-1 were assigned to group 2"),
    ("events --since 6 --limit 1", "events", "8 to 9"),
    ("group list", "groups", "127.0.0.1:6378"),
    ("migrator list", "migrators", "carrier"),
    ("group add 5 h:1", "groups", "group 5 added"),
    ("group remove 5", "groups", "group 5 removed"),
    ("group drain 5 --why old", "groups", "group 5 leaves"),
    ("group drain 5", "groups", "until then the same command with --cancel has it stay"),
    ("group drain 5 --cancel", "groups", "group 5 stays"),
    ("server drain h:1", "groups", "h:1 has left group 5"),
    ("server drain h:2 --why old", "groups", "server h:2 leaves group 5 once a replica has taken its place"),
    ("server drain h:1 --cancel", "groups", "server h:1 stays in group 5"),
    ("node drain host-1 --why old --fewer-copies", "nodes", "node host-1 leaves; it is gone once"),
    ("node drain host-1 --cancel", "nodes", "node host-1 stays"),
    ("server add 5 h:1", "groups", "server h:1 added to group 5"),
    ("server add 5 h:1 --wipe", "groups", "server h:1 added to group 5"),
    ("group add 5 h:1 --datacenter rome", "groups", "group 5 added"),
    ("server add 5 h:1 --datacenter rome", "groups", "server h:1 added to group 5"),
    ("server set h:1 --datacenter rome", "groups", "server h:1 is in datacenter rome"),
    ("server add 5 h:1 --node n1", "groups", "server h:1 added to group 5"),
    ("server set h:1 --node n1", "groups", "server h:1 is on node n1"),
    ("pool list", "pool", "rack3"),
    ("placement show", "placement", "missing: group 2 lacks a copy"),
    ("placement show", "placement", "would change in round 1: h:9 on node rack3 becomes a replica"),
    ("placement apply", "placement/apply", "being applied, for operator me"),
    ("placement cancel", "placement/cancel", "what it had done stays"),
    ("placement auto on", "placement/auto", "applied by itself from now on"),
    ("placement auto off", "placement/auto", "not applied by itself any more"),
    ("pool add h:9 --node rack3", "pool", "server h:9 added to the pool"),
    ("pool remove h:9", "pool", "server h:9 removed from the pool"),
    ("server remove h:1", "groups", "server h:1 removed from group 5"),
    ("server sweep h:1", "groups/5/servers/h:1/sweep", "7 keys removed from h:1"),
    ("server sweep h:3", "groups/5/servers/h:3/sweep", "keys are being removed from h:3"),
    ("group promote 1 h:2", "groups/1/promote", "h:2 is the master of group 1"),
    ("group promote 1 h:2 --force", "groups/1/promote", "h:2 is the master of group 1"),
    ("group promote 5 h:1", "groups/5/promote", "h:1 is the master of group 5 already; nothing was changed"),
    ("digest show 1", "groups/1/digest", "h:2: cancelled, 7 of 9 keys compared"),
    ("digest cancel 1", "groups/1/digest", "2 keys differ from h:1"),
    ("digest cancel 1", "groups/1/digest", "1 key was not compared"),
    ("rules list", "rules", "what is in parentheses"),
    ("rules list", "rules", "clients get TRYAGAIN for keys whose slot changes, 1,234 so far"),
    ("rules cancel", "rules/cancel", "there are no slot rules"),
    ("rules add bull:(*):*", "rules", "queues"),
    ("rules remove bull:*", "rules", "bull:(*):*"),
    ("user list", "users", "databases=0,3 read_only=true"),
    ("user list", "users", "proxy 3 leaves out user a/b: that proxy has a user of this name itself"),
    ("user list", "users", "proxy 4 does not use these users: it is not [connected]"),
    ("user set a/b read_only=true", "users/a%2Fb", "user a/b is set"),
    ("user set .. read_only=true", "users/%2E%2E", "user .. is set"),
    ("user remove a/b", "users/a%2Fb", "user a/b removed"),
    ("protection show", "protection", "nothing is done by itself; 3 of 5 members lost"),
    ("protection off", "protection/lift", "protection is off"),
    ("protection off", "protection/lift", "operator ada lifted it at 19"),
    ("pause --why rebuilding", "pause", "operator ada paused topom at 19"),
    ("resume", "resume", "topom acts by itself"),
    ("sentinel list", "sentinels", "127.0.0.1:7001"),
    ("sentinel add h:1", "sentinels", "sentinel h:1 added"),
    ("sentinel remove h:1", "sentinels", "h:1 could not be told: [refused]"),
    ("sentinel resync", "sentinels/resync", "watch the groups again"),
    ("proxy list", "proxies", "1,234,567"),
    ("proxy drain 3", "proxies", "proxy 3 at 127.0.0.1:6380 leaves; it is gone once it has let 5 clients go"),
    ("proxy drain 3", "proxies", "this cannot be taken back; start the proxy again afterwards if it is to stay"),
    ("proxy reload", "proxies/reload", "proxy 3 at 127.0.0.1:6380: /etc/[topom].toml, read at "),
    ("proxy reload 3", "proxies/3/reload", ": token, users changed"),
    (
        "proxy reload 3",
        "proxies/3/reload",
        "the environment has another value of these, and wins over the file: password",
    ),
    ("settings reload", "settings/reload", ": nothing changed"),
    ("settings show", "settings", "these differ in the file, and need a restart: listen, url"),
    ("proxy remove 3 --force", "proxies", "could not be cut off h:1: [refused]"),
    ("slot list", "slots", "1-2"),
    ("slot list", "slots", "a[1]\\x1b, 2.0 KiB"),
    ("slot list --each", "slots", "2.9 KiB"),
    ("sizing show", "sizes", "2.9 KiB in 4 keys, measured 2 h 30 min ago"),
    ("sizing show", "sizes", "[b]a\\x1b:       2.0 KiB  66.7%     2\n(no separator)  500 B    16.7%     1\n"),
    ("slot assign 0-1 --to 2", "slots", "assigned to group 2: slots 0-1"),
    ("slot move 0-1 --to 2", "slots", "nothing to change: these slots are in group 2 or on the way to it"),
    ("slot offline 2", "slots", "offline: slot 2"),
    ("rebalance --dry-run", "rebalance", "2 slots would move"),
    ("rebalance --policy bytes --drain 1 --drain 3 --capacity 2=1.5 --most-slots 9", "rebalance", "would move"),
    ("migration show", "migration", "waits for [proxy 3]"),
    ("migration pause", "migration", "paused"),
    ("migration resume", "migration", "goes on"),
    ("migration cancel", "migration", "on the way back: slot 3"),
    ("migration cancel --slots 0-3", "migration", "too late, they have moved: slot 2"),
    ("migration cancel --slots 0-1", "migration", "cancelled before anything moved: slots 0-1"),
    ("migration skip --slots 0-1", "migration", "skipped: slots 0-1"),
    ("migration retry --slots 0-1", "migration", "tried again; no longer skipped: slots 0-1"),
    ("migration show", "migration", "skipped: slots 7-8: target h:1 is full"),
    ("slot list", "slots", "no room at all"),
    ("migration set --keys-per-second 9", "migration", "parallel_slots"),
]
runner = CliRunner()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """What topom was asked, by verbs that reach the topom played here."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers.get("Authorization") != "Bearer right":
            return httpx.Response(401, json={"error": "Unauthorized", "message": "no"})
        found = ANSWERS.get((request.method, request.url.path))
        if found is None:
            return httpx.Response(404, json={"error": "NotFound", "message": "there is no such thing"})
        return httpx.Response(200, json=found)

    monkeypatch.setenv("SLOTFERRY_TOKEN", "right")
    monkeypatch.delenv("SLOTFERRY_TOPOM", raising=False)
    return play_topom(monkeypatch, answer)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"silent": "it did not answer within 6 s"}, "it did not answer within 6 s"),
        ({"refused": "Setting users is odd."}, "cannot be used, and nothing has changed: Setting users is odd."),
        ({"following": 1}, "so far 1 of 2 workers say that they use them"),
    ],
)
def test_a_proxy_that_has_not_taken_its_settings_is_told_and_the_status_is_1(
    seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], says: str
) -> None:
    monkeypatch.setitem(ANSWERS, ("POST", "/api/v1/proxies/3/reload"), {**PROXY_RELOADED, **change})
    result = runner.invoke(app, ["proxy", "reload", "3"])
    assert result.exit_code == 1
    assert says in result.stdout


def test_each_topom_that_is_named_is_asked_for_itself(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["settings", "reload", "--topom", "http://a:1,http://b:2", "-o", "json"])
    assert result.exit_code == 0
    assert [str(request.url) for request in seen] == [
        f"http://{host}/api/v1/settings/reload" for host in ("a:1", "b:2")
    ]
    assert [one["topom"] for one in json.loads(result.stdout)["topoms"]] == ["http://a:1", "http://b:2"]
    wrong = runner.invoke(app, ["settings", "reload", "--topom", "http://a:1,http://b:2", "--token", "wrong"])
    assert wrong.exit_code == 1
    assert wrong.stdout.count("does not accept the token") == 2


@pytest.mark.parametrize("line", ["group add 5 h:1 h:2", "server add 5 h:2", "pool add h:9"])
def test_keys_are_wiped_only_by_an_operators_word(seen: list[httpx.Request], line: str) -> None:
    for option in ("", " --wipe"):
        assert runner.invoke(app, (line + option).split()).exit_code == 0
        assert json.loads(seen[-1].content).get("wipe", False) is bool(option)


@pytest.mark.parametrize(("line", "family", "expected"), VERBS, ids=[verb[0] for verb in VERBS])
def test_a_verb_says_what_it_did(seen: list[httpx.Request], line: str, family: str, expected: str) -> None:
    result = runner.invoke(app, line.split())
    assert result.exit_code == 0, result.output
    assert expected in result.stdout
    assert f"/api/v1/{family}" in str(seen[-1].url)


def test_the_biggest_prefixes_are_shown_and_no_more(seen: list[httpx.Request]) -> None:
    said = runner.invoke(app, ["sizing", "show"]).stdout
    assert [f"of{number}: " in said for number in range(20)] == [number < MOST_PREFIXES - 2 for number in range(20)]


@pytest.mark.parametrize(("line", "family", "expected"), VERBS, ids=[verb[0] for verb in VERBS])
def test_a_verb_prints_one_line_of_json(seen: list[httpx.Request], line: str, family: str, expected: str) -> None:
    result = runner.invoke(app, [*line.split(), "-o", "json"])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == ANSWERS[seen[-1].method, seen[-1].url.path]


@pytest.mark.parametrize(("line", "family", "expected"), VERBS[::7], ids=[verb[0] for verb in VERBS[::7]])
def test_a_verb_prints_yaml(seen: list[httpx.Request], line: str, family: str, expected: str) -> None:
    result = runner.invoke(app, [*line.split(), "--output", "yaml"])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout) == ANSWERS[seen[-1].method, seen[-1].url.path]


@pytest.mark.long
def test_every_verb_that_asks_topom_takes_the_same_forms() -> None:
    def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        yield name, command
        for below, one in getattr(command, "commands", {}).items():
            yield from commands(one, f"{name} {below}".strip())

    for name, command in commands(typer.main.get_command(app), ""):
        options = {option: parameter for parameter in command.params for option in parameter.opts}
        if "--topom" in options and name != "top":
            assert "--json" not in options
            assert options["-o"] is options["--output"], name
            wrong = runner.invoke(app, [*name.split(), "--output", "xml"])
            assert wrong.exit_code == 2, name


def test_no_notable_requests_are_said_in_words(seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/load/notable"), {"since": 50.0, "requests": []})
    result = runner.invoke(app, ["load", "--notable"])
    assert result.exit_code == 0, result.output
    assert "no big keys and no slow commands since 1970-01-01" in result.stdout


def test_a_placement_with_nothing_to_do_is_no_error(seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/api/v1/placement/apply"
    monkeypatch.setitem(ANSWERS, ("POST", path), {**ANSWERS["POST", path], "run": None})
    result = runner.invoke(app, ["placement", "apply"])
    assert (result.exit_code, result.stdout) == (0, "nothing to do: everything is as it should be\n")


def test_what_an_earlier_topom_found_is_shown_too(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["digest", "show", "2"])
    assert result.exit_code == 1
    assert "h:3 differs in 7 keys" in result.stdout


def test_every_verb_of_the_help_is_tested() -> None:
    served = {"topom", "local", "demo", "config", "plan", "import", "top", "context"}
    named = {verb[0].split()[0] for verb in VERBS}
    groups = {group.name for group in app.registered_groups}
    assert groups | {command.name for command in app.registered_commands} == named | served


LOOKS: list[tuple[str, str, Any]] = [
    ("user show a/b", "kept, not shown", USERS["users"][0]),
    ("group show 1", "127.0.0.1:6378", STATUS["groups"][0]),
    ("server list", "127.0.0.1:6378", {"servers": SERVERS_OF_GROUPS}),
    ("server show 127.0.0.1:6379", "2.0 KiB", SERVERS_OF_GROUPS[0]),
    ("proxy show 3", "1,234,567", PROXY),
    ("node list", "rack3", {"nodes": PLACEMENT["nodes"]}),
    ("node show rack3", "1, 2", PLACEMENT["nodes"][0]),
    ("slot show 2", "a[1]\\x1b", SLOTS["slots"][2]),
    ("slot show 3", "no room at all", SLOTS["slots"][3]),
]


@pytest.mark.parametrize(("line", "expected", "answer"), LOOKS, ids=[look[0] for look in LOOKS])
def test_one_thing_is_shown_and_many_are_listed(
    seen: list[httpx.Request], line: str, expected: str, answer: Any
) -> None:
    said = runner.invoke(app, line.split())
    assert said.exit_code == 0, said.output
    assert expected in said.stdout
    assert json.loads(runner.invoke(app, [*line.split(), "-o", "json"]).stdout) == answer


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("group show 7", "there is no group 7; there are: 1, 2, 5"),
        ("server show h:9", "there is no server h:9 in a group; there are: 127.0.0.1:6379, 127.0.0.1:6378, h:1"),
        ("server drain h:9", "there is no server h:9 in a group; there are: 127.0.0.1:6379, 127.0.0.1:6378, h:1"),
        ("server remove h:9", "there is no server h:9 in a group; there are: 127.0.0.1:6379, 127.0.0.1:6378, h:1"),
        ("proxy show 7", "there is no proxy 7; there are: 3"),
        ("node show rack9", "there is no node rack9; there are: rack3"),
        ("slot show 9", "there is no slot 9; the last one is 3"),
    ],
)
def test_what_is_not_there_cannot_be_shown(seen: list[httpx.Request], line: str, expected: str) -> None:
    said = runner.invoke(app, line.split())
    assert (said.exit_code, said.stdout) == (1, "")
    assert expected in said.stderr


def test_every_family_has_one_word_for_looking() -> None:
    """`show` is for one thing, `list` for many; a family that only runs or only changes something has neither."""
    verbs = {
        group.name: {command.name for command in group.typer_instance.registered_commands if group.typer_instance}
        for group in app.registered_groups
    }
    assert {name for name, known in verbs.items() if not known & {"show", "list"}} == {"import", "config"}
    many = {"group", "server", "proxy", "node", "slot", "context", "user"}
    assert {name for name, known in verbs.items() if {"show", "list"} <= known} == many | {"sizing"}
    assert {name for name, known in verbs.items() if "drain" in known} == {"group", "server", "node", "proxy"}
    other_words = {"status", "info", "get", "describe", "ls", "biggest", "sizes"}
    assert not other_words & {verb for known in verbs.values() for verb in known}


@pytest.mark.parametrize("line", ["events", "proxy list", "group list", "server list", "migrator list"])
def test_a_list_is_no_wider_than_the_terminal(
    seen: list[httpx.Request], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {
        ("GET", "/api/v1/events"): {
            "oldest": 1,
            "newest": 1234567,
            "events": [{**EVENT, "id": 1234567, "who": "administrator@machine-17.rack-3.example.com (operator)"}],
        },
        ("GET", "/api/v1/proxies"): {
            "proxies": [{**PROXY, "address": "192.168.100.200:26380", "hostname": "machine-17.rack-3.example.com"}]
        },
    }
    for place, answer in long.items():
        monkeypatch.setitem(ANSWERS, place, answer)
    printed = io.StringIO()
    monkeypatch.setattr(output, "out", Console(file=printed, width=80, soft_wrap=True))
    assert runner.invoke(app, line.split()).exit_code == 0
    lines = printed.getvalue().splitlines()
    assert len(lines) >= 2
    assert [one for one in lines if len(one.rstrip()) > 80] == []


def test_topom_is_told_who_asks(seen: list[httpx.Request]) -> None:
    assert runner.invoke(app, ["status"]).exit_code == 0
    assert seen[0].headers["X-Slotferry-User"].endswith(f"@{socket.gethostname()}")


def test_address_and_token_by_option_go_before_the_environment(
    seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOTFERRY_TOPOM", "http://environment:1")
    assert runner.invoke(app, ["status"]).exit_code == 0
    assert runner.invoke(app, ["status", "--topom", "http://option:2", "--token", "other"]).exit_code == 1
    assert [request.url.host for request in seen] == ["environment", "option"]
    assert seen[1].headers["Authorization"] == "Bearer other"


@pytest.mark.parametrize("line", ["status", "status --output json"])
def test_a_wrong_token_is_a_sentence_and_a_status(seen: list[httpx.Request], line: str) -> None:
    result = runner.invoke(app, [*line.split(), "--token", "wrong"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "does not accept the token" in result.stderr
    assert "Traceback" not in result.stderr
    assert "wrong" not in result.stderr


@pytest.mark.parametrize(
    ("number", "says"), [(1, "1 setting of its file needs a restart"), (2, "2 settings of its file need a restart")]
)
def test_a_proxy_whose_settings_need_a_restart_is_told(
    seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    one = {**PROXY, "counters": {"settings_restart": number}}
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/status"), {**STATUS, "proxies": [one]})
    assert f"proxy 3: {says}; its log names" in runner.invoke(app, ["status"]).stdout


def test_no_token_is_not_taken_for_a_wrong_one(seen: list[httpx.Request], tmp_path: Path) -> None:
    said = runner.invoke(app, ["status"], env={"SLOTFERRY_TOKEN": "", "XDG_CONFIG_HOME": str(tmp_path)})
    assert (said.exit_code, said.stdout) == (1, "")
    assert "wants a token; give one by --token" in said.stderr


def test_a_refusal_is_topoms_sentence(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["group", "remove", "9"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no such thing" in result.stderr


def test_nobody_there() -> None:
    result = runner.invoke(app, ["status", "--topom", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert "check that it runs" in result.stderr


def test_what_a_verb_asks_for(seen: list[httpx.Request]) -> None:
    for line, body in (
        ("migration cancel", {"slots": None}),
        ("migration cancel --slots 0-3", {"slots": "0-3"}),
        ("migration skip --slots 5", {"slots": "5"}),
        ("migration retry", {"slots": None}),
    ):
        assert runner.invoke(app, line.split()).exit_code == 0
        assert json.loads(seen[-1].content) == body
    assert runner.invoke(app, ["migration", "skip"]).exit_code == 2, "all slots are not skipped by omission"


def test_setting_nothing_is_wrong_usage(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["migration", "set"])
    assert result.exit_code == 2
    assert not seen


def test_hours_and_latency_goal_go_to_topom_as_they_were_given(seen: list[httpx.Request]) -> None:
    arguments = ["--latency-goal-milliseconds", "2.5", "--hours", "22:00-06:00", "--time-zone", ""]
    result = runner.invoke(app, ["migration", "set", *arguments])
    assert result.exit_code == 0, result.output
    assert json.loads(seen[-1].content) == {"latency_goal_milliseconds": 2.5, "hours": "22:00-06:00", "time_zone": ""}


def test_how_a_move_is_held_back_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    source = {
        "address": "h:1",
        "p99_milliseconds": 12.34,
        "quiet_p99_milliseconds": 1.04,
        "allowed_milliseconds": 5.0,
    }
    target = {"address": "h:2", "p99_milliseconds": None, "quiet_p99_milliseconds": None, "allowed_milliseconds": 5.5}
    pacing = {
        "speed": 0.312,
        "source": source,
        "target": target,
        "reason": because("held back to 31%: [source] h:1 is slow"),
    }
    held = {**MIGRATION, "batches": [{**BATCH, "pacing": pacing}]}
    say_migration(held)
    shown = capsys.readouterr().out
    assert "held back to 31%: [source] h:1 is slow" in shown
    assert "12.3 (quiet 1.0)" in shown
    assert "5.0 and 5.5" in shown
    assert "31%" in shown.replace("held back to 31%", "")


def test_what_a_batch_waits_for_is_shown_beside_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    say_migration({**MIGRATION, "batches": [{**BATCH, "notes": ["by the stream: it is faster", "follows master s:1"]}]})
    shown = capsys.readouterr().out
    assert "waits for [proxy 3]; by the stream: it is faster; follows master s:1" in " ".join(shown.split())


def test_why_moving_is_halted_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "migration is outside its hours, 22:00-06:00; it goes on at 2026-02-10 22:00+01:00"
    halted = {"kind": "hours", "what": reason, "since": 0.0, "to_do": ""}
    say_migration({**MIGRATION, "halted": halted, "batches": [{**BATCH, "reason": halted}]})
    first_line = capsys.readouterr().out.splitlines()[0]
    assert first_line.count(reason) == 1
    assert "keys/s" not in first_line


def test_help_and_version() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    for word in ("proxy", "topom", "local", "demo", "status", "group", "server", "slots", "rebalance", "migration"):
        assert word in result.stdout
    assert runner.invoke(app, ["--version"]).stdout == f"slotferry {__version__}\n"


def test_slots_are_chosen_by_ranges_and_by_size(seen: list[httpx.Request]) -> None:
    def shown(*arguments: str) -> list[int]:
        result = runner.invoke(app, ["slot", "list", *arguments, "-o", "json"])
        assert result.exit_code == 0, result.output
        return [slot["id"] for slot in json.loads(result.stdout)["slots"]]

    assert shown("1-2") == [1, 2]
    assert shown("--top", "2") == [2, 0]
    assert shown("0,3", "--top", "5") == [0, 3]
    wrong = runner.invoke(app, ["slot", "list", "9"])
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "is not within 0-3" in wrong.stderr


def test_the_biggest_keys(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["sizing", "list", "-o", "json"])
    key = {"slot": 2, "group_id": 1, "key": "a[1]\x1b", "database": 3, "type": "hash", "bytes": 2048}
    assert json.loads(result.stdout) == {"keys": [key]}
    assert "a[1]\\x1b" in runner.invoke(app, ["sizing", "list"]).stdout
    assert "had no keys" in runner.invoke(app, ["sizing", "list", "0"]).stdout
    assert seen[0].url.params["biggest"] == "10"


def test_a_plan_says_what_it_could_not_do(seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"reasons": ["slot 3 alone is larger than a share"], "warnings": ["sizes are stale"]}
    monkeypatch.setitem(
        ANSWERS, ("POST", "/api/v1/rebalance"), {"policy": "bytes", "dry_run": True, "moves": [], **said}
    )
    result = runner.invoke(app, ["rebalance", "--dry-run"])
    assert result.stdout == "nothing to move\nslot 3 alone is larger than a share\n"
    assert "sizes are stale" in result.stderr


@pytest.mark.parametrize("capacity", ["3", "x=1", "3=", "=1"])
def test_a_capacity_that_is_none(seen: list[httpx.Request], capacity: str) -> None:
    result = runner.invoke(app, ["rebalance", "--capacity", capacity])
    assert result.exit_code == 2
    assert seen == []


def test_what_only_a_leader_knows_is_said_to_be_unknown(
    seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = {"address": "h:1", "role": "master", "up": True, "condition": "unknown", "silent": 0, "views": 0}
    unknown = {"active": None, "lost": None, "members": None}
    status = {**STATUS, "groups": [{"id": 1, "slots": 3, "servers": [server]}], "protection": unknown}
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/status"), status)
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/protection"), unknown)
    assert "up, condition unknown" in runner.invoke(app, ["status"]).stdout
    assert "is not known" in runner.invoke(app, ["protection", "show"]).stdout


def test_a_master_that_says_that_it_is_a_replica_is_shown_as_one(
    seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = [{"address": "h:1", "role": "replica", "up": True}, {"address": "h:2", "role": "master", "up": True}]
    groups = [{"id": 1, "slots": 3, "servers": servers}, {"id": 2, "slots": 1, "servers": [{"address": "h:3"}]}]
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/status"), {**STATUS, "groups": groups})
    monkeypatch.setitem(ANSWERS, ("GET", "/api/v1/groups"), {"epoch": 9, "groups": groups})
    said = runner.invoke(app, ["status"]).stdout
    roles = {line.split("h:")[1][0]: line.split("h:")[1].split()[1] for line in said.splitlines() if " h:" in line[:16]}
    assert roles == {"1": "replica", "2": "master", "3": "master"}
    assert "group 1: its master h:1 says that it is a replica" in said
    assert "slotferry group promote 1 HOST:PORT --force" in said
    listed = json.loads(runner.invoke(app, ["server", "list", "-o", "json"]).stdout)["servers"]
    assert [server["role"] for server in listed] == ["replica", "master", "master"]


def test_the_status_lists_migrators(seen: list[httpx.Request]) -> None:
    said = runner.invoke(app, ["status"]).stdout
    [line] = [line for line in said.splitlines() if "carrier" in line]
    assert line.split() == ["1", "carrier", "77", "topom", "-", "d1", "1", "123,457", "3.0", "GiB"]


@pytest.mark.parametrize(
    ("groups", "assigned", "proxies", "expected"),
    [
        ([], 0, [], "slotferry group add 1 HOST:PORT"),
        ([{"id": 7, "servers": []}], 0, [], "slotferry server add 7 HOST:PORT"),
        ([{"id": 7, "servers": [{}]}], 0, [], "slotferry slot assign 0-15 --to GROUP"),
        ([{"id": 7, "servers": [{}]}], 16, [], "slotferry proxy"),
    ],
)
def test_a_cluster_that_lacks_something_says_what_to_do_next(
    groups: list[Any], assigned: int, proxies: list[Any], expected: str
) -> None:
    found = {"groups": groups, "proxies": proxies, "number_of_slots": 16, "slots": {"assigned": assigned}}
    assert next_step(found).endswith(expected)
    assert next_step({**found, "groups": [{"id": 7, "servers": [{}]}], "slots": {"assigned": 1}, "proxies": [1]}) == ""
