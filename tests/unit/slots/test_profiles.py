"""The profiles of frameworks: which of their keys share a slot, which are spread, and whose keys they leave alone."""

from pathlib import Path

import pytest

from slots.keyslots import KeySlots
from slots.profiles import described, profile, profiles
from slots.rules import MOST_RULES, RuleError, checked, rules_from_wire, rules_to_wire

# Keys of a framework by profile: each list shares a slot, and the lists have different ones.
KEYS = {
    "arq": [["arq:queue", "arq:job:1", "arq:in-progress:1", "arq:result:1", "arq:retry:1", "arq:queue:health-check"]],
    "bullmq": [
        [
            "bull:mail:wait",
            "bull:mail:1",
            "bull:mail:1:lock",
            "bull:mail:repeat:often:1",
            "bull:mail:",
            "bull:mail:meta",
        ],
        ["bull:pictures:wait", "bull:pictures:1:logs"],
    ],
    "bullmq-flows": [["bull:mail:wait", "bull:mail:1:dependencies", "bull:pictures:wait"]],
    "celery": [
        [
            "celery",
            "celery\x06\x163",
            "unacked",
            "unacked_index",
            "unacked_mutex",
            "_kombu.binding.celery",
            "_kombu.binding.celery.pidbox",
            "celery@host.celery.pidbox",
            "6a.reply.celery.pidbox\x06\x166",
            "celeryev.6a",
        ],
        ["celery-taskset-meta-6a.j", "celery-taskset-meta-6a.t", "celery-taskset-meta-6a.s", "celery-taskset-meta-6a"],
        ["celery-task-meta-7b"],
        ["celery-task-meta-8c"],
    ],
    "django": [
        [":1:key", ":1:other", ":2:key"],
        [":1:django.contrib.sessions.cacheabc"],
        [":1:views.decorators.cache.cache_page..GET.1"],
        [":1:template.cache.sidebar.2"],
    ],
    "laravel": [
        [f"laravel_database_queues:default{end}" for end in ("", ":reserved", ":delayed", ":notify")],
        ["laravel_database_queues:high", "laravel_database_queues:high:notify"],
        ["laravel_database_laravel_cache:a", "laravel_database_laravel_cache:b"],
    ],
    "redis-lock": [["lock:one", "lock-signal:one"], ["lock:two", "lock-signal:two"]],
    "resque": [["resque:queues", "resque:queue:math", "resque:delayed:17", "resque:stat:failed"]],
    "rq": [["rq:queues", "rq:queue:default", "rq:job:1", "rq:job:1:dependents", "rq:workers"]],
    "sidekiq": [["queue:default", "queues", "stat:processed", "processes", "host:1:5f0c", "host:1:5f0c:workers"]],
}


@pytest.mark.parametrize("name", profiles())
def test_keys_that_are_used_together_share_a_slot_and_others_do_not(name: str) -> None:
    slot_of = KeySlots("crc32", 16384, profile(name)).slot_of
    found = [{slot_of(0, key.encode()) for key in keys} for keys in KEYS[name]]
    assert all(len(slots) == 1 for slots in found), found
    assert len(set.union(*found)) == len(found)


@pytest.mark.parametrize("name", profiles())
def test_a_profile_that_is_apart_leaves_the_keys_of_others_alone(name: str) -> None:
    plain, ruled = KeySlots("crc32", 16384), KeySlots("crc32", 16384, profile(name))
    others = [
        key for other in profiles() if other.split("-")[0] != name.split("-")[0] for keys in KEYS[other] for key in keys
    ]
    assert others
    taken = [key for key in others if plain.slot_of(0, key.encode()) != ruled.slot_of(0, key.encode())]
    assert bool(taken) is not described(name).apart, taken


def test_those_that_are_apart_may_all_be_rules_of_one_product() -> None:
    together = [rule for name in profiles() for rule in profile(name)]
    assert len(together) < MOST_RULES
    assert rules_from_wire(rules_to_wire(checked(together))) == tuple(together)


def test_a_profile_of_one_database() -> None:
    slots = KeySlots("crc32", 16384, profile("rq", 3))
    one, two = b"rq:queues", b"rq:queue:default"
    assert slots.slot_of(3, one) == slots.slot_of(3, two)
    assert slots.slot_of(0, one) != slots.slot_of(0, two)


def test_a_profile_that_is_not_there() -> None:
    with pytest.raises(RuleError, match="no profile 'sidekick'; there are arq, bullmq,"):
        profile("sidekick")


def test_the_page_names_each_profile() -> None:
    page = (Path(__file__).parents[3] / "docs" / "frameworks.md").read_text()
    assert all(f"| `{name}` |" in page for name in profiles())
