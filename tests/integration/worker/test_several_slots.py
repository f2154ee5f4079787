"""Keys of several slots, where they have to share one: the error names two of them, and the slot rule that helps."""

import re
from collections.abc import Awaitable, Callable

import pytest

from slots.rules import SlotRule
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness, slot_of

StartWorker = Callable[..., Awaitable[WorkerHarness]]
ONE, OTHER = "bull:mail:wait", "bull:mail:id"
REFUSED = (
    f"-CROSSSLOT Keys in request don't hash to the same slot: '{ONE}' has slot {slot_of(ONE)}, '{OTHER}' "
    f"{slot_of(OTHER)}; slot rule 'bull:(*):*' would give both one slot\r\n"
).encode()
UNLIKE = "a", "b"
"""Keys whose names suggest no rule."""
SCRIPT = "return {KEYS[1], KEYS[2]}"


@pytest.mark.parametrize("protocol", [2, 3])
async def test_the_rule_that_is_named_helps(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker()
    async with Talk(worker.settings.listen, protocol) as talk:
        digest = (await talk.ask("SCRIPT", "LOAD", SCRIPT)).split(b"\r\n")[1]
        library = "#!lua name=two\nredis.register_function('two', function(keys) return keys end)"
        await talk.ask("FUNCTION", "LOAD", "REPLACE", library)
        alone: list[tuple[str | bytes | int, ...]] = [
            ("SMOVE", ONE, OTHER, "x"),
            ("ZRANGESTORE", ONE, OTHER, "0", "-1"),
            ("MSETNX", ONE, "1", OTHER, "2"),
            ("DEL", ONE, OTHER),
            ("EVAL", SCRIPT, 2, ONE, OTHER),
            ("EVAL_RO", SCRIPT, 2, ONE, OTHER),
            ("EVALSHA", digest, 2, ONE, OTHER),
            ("EVALSHA", "0" * 40, 2, ONE, OTHER),
            ("FCALL", "two", 2, ONE, OTHER),
            ("XREAD", "STREAMS", ONE, OTHER, "0", "0"),
            ("WATCH", ONE, OTHER),
            ("UNWATCH",),
        ]
        of_any_slots = {"DEL", "XREAD", "UNWATCH"}
        for request in alone:
            reply = await talk.ask(*request)
            assert (reply == REFUSED) is (request[0] not in of_any_slots), request
        for spoilt in (("SET", OTHER, "1"), ("SINTER", ONE, OTHER), ("EVAL", SCRIPT, 2, ONE, OTHER)):
            await talk.ask("MULTI")
            assert await talk.ask("SET", ONE, "1") == b"+QUEUED\r\n"
            # At once, and not with EXEC.
            assert await talk.ask(*spoilt) == REFUSED
            assert (await talk.ask("EXEC")).startswith(b"-EXECABORT ")
        assert await talk.ask("WATCH", ONE) == b"+OK\r\n"
        await talk.ask("MULTI")
        assert await talk.ask("SET", OTHER, "1") == REFUSED
        assert (await talk.ask("EXEC")).startswith(b"-EXECABORT ")
        assert await talk.ask("WATCH", ONE) == b"+OK\r\n"
        assert await talk.ask("WATCH", OTHER) == REFUSED
        assert await talk.ask("UNWATCH") == b"+OK\r\n"

        named = re.search(rb"slot rule '(.*)' would", REFUSED)
        assert named is not None
        worker.table = worker.table.ruled(worker.table.epoch + 1, (SlotRule(named[1].decode()),))
        await worker.apply()
        for request in alone:
            reply = await talk.ask(*request)
            assert not reply.startswith(b"-") or request[1] == "0" * 40, (request, reply)
        assert await talk.ask("WATCH", ONE, OTHER) == b"+OK\r\n"
        await talk.ask("MULTI")
        await talk.ask("DEL", ONE)
        assert await talk.ask("SADD", OTHER, "1") == b"+QUEUED\r\n"
        assert not (await talk.ask("EXEC")).startswith(b"-")


async def test_keys_without_a_rule_could_have_a_hash_tag(start_worker: StartWorker) -> None:
    worker = await start_worker()
    one, other = UNLIKE
    refused = (
        f"-CROSSSLOT Keys in request don't hash to the same slot: '{one}' has slot {slot_of(one)}, '{other}' "
        f"{slot_of(other)}; a hash tag in common ({{tag}} in their names) would give them one slot\r\n"
    ).encode()
    async with Talk(worker.settings.listen) as talk:
        for request in (
            ("MSETNX", one, "1", other, "2"),
            ("PFCOUNT", one, other),
            ("PFMERGE", one, other),
            ("BITOP", "AND", one, other),
            ("LMOVE", one, other, "LEFT", "LEFT"),
        ):
            assert await talk.ask(*request) == refused
        assert await talk.ask("EXISTS", one, other) == b":0\r\n"
        assert await talk.ask("MSETNX", f"{{tag}}{one}", "1", f"{{tag}}{other}", "2") == b":1\r\n"
