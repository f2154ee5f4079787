"""Profiles: the slot rules that make a framework work with its default settings.

A framework that uses several keys in one transaction, script or command needs them in one slot. Its profile spreads
what can be spread, such as one slot for each queue, and keeps only the rest together. ``docs/frameworks.md`` says what
was tried; ``tests/integration/frameworks`` tries it with the frameworks themselves.

A product may have the rules of several profiles. The first rule that matches a key decides, so the rules of a profile
that is not *apart* come last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slots.rules import RuleError, SlotRule


@dataclass(frozen=True, slots=True)
class Profile:
    """The slot rules of a framework.

    Attributes:
        name: what an operator calls it.
        covers: what works with it, in a sentence.
        spread: what of it is spread over slots, in a sentence.
        lacks: what it does not cover, in a sentence; empty if nothing is known.
        rules: its rules, in their order.
        apart: whether its patterns only match the framework's own keys. If not, its rules come after all others, or
            the framework has a database of its own.
    """

    name: str
    covers: str
    spread: str
    lacks: str
    rules: tuple[SlotRule, ...]
    apart: bool = True


_LARAVEL = "*database*queues:(*)"

_PROFILES = (
    Profile(
        "arq",
        "Jobs, results, retries, deferred jobs, cron jobs and aborts of arq.",
        "Nothing: each of its transactions uses its queue.",
        "Queues whose names do not begin with arq: need a rule of their own with the tag arq.",
        (SlotRule("arq:*", tag="arq"),),
    ),
    Profile(
        "bullmq",
        "Queues, workers, events, delayed jobs, priorities, repeated jobs, and flows within one queue, of BullMQ.",
        "Each queue has a slot.",
        "A flow over several queues needs bullmq-flows instead. Another prefix than bull needs a rule of its own.",
        (SlotRule("bull:(*):*"),),
    ),
    Profile(
        "bullmq-flows",
        "All of bullmq, and flows over several queues.",
        "Nothing: a job may have its parent in any queue.",
        "Another prefix than bull needs a rule of its own.",
        (SlotRule("bull:*", tag="bull"),),
    ),
    Profile(
        "celery",
        "Celery with Redis as its broker and for its results: retries, countdowns, priorities, groups, chords.",
        "Results, and what counts a chord. The queues are one slot.",
        "Each further queue needs a rule with the tag celery: for a queue mail, the pattern mail*.",
        (
            SlotRule("celery-task-meta-(*)"),
            SlotRule("celery-taskset-meta-(*).*"),
            SlotRule("celery-taskset-meta-(*)"),
            SlotRule("celery*", tag="celery"),
            SlotRule("unacked*", tag="celery"),
            SlotRule("_kombu.*", tag="celery"),
            SlotRule("*.celery.pidbox*", tag="celery"),
        ),
    ),
    Profile(
        "django",
        "set_many of Django's RedisCache and of django-redis, and delete_pattern of django-redis.",
        "Sessions, whole pages and parts of templates in the cache. All other keys of the cache are one slot.",
        "A KEY_PREFIX needs rules of its own, such as shop:*:*. Without these two, no rule is needed.",
        (
            SlotRule(":*:(django.contrib.sessions.*)"),
            SlotRule(":*:(views.decorators.cache.*)"),
            SlotRule(":*:(template.cache.*)"),
            SlotRule(":*:*", tag="django"),
        ),
    ),
    Profile(
        "laravel",
        "Queues of Laravel with delayed, reserved and released jobs, and Cache::putMany.",
        "Each queue has a slot. The cache is one slot.",
        "Names of APP_NAME and of prefixes that were changed need rules of their own.",
        (
            SlotRule(f"{_LARAVEL}:reserved"),
            SlotRule(f"{_LARAVEL}:delayed"),
            SlotRule(f"{_LARAVEL}:notify"),
            SlotRule(_LARAVEL),
            SlotRule("*database*cache*", tag="laravel-cache"),
        ),
    ),
    Profile(
        "redis-lock",
        "Locks of python-redis-lock.",
        "Each lock has a slot.",
        "reset_all looks for the locks of one server only.",
        (SlotRule("lock:(*)"), SlotRule("lock-signal:(*)")),
    ),
    Profile(
        "resque",
        "Jobs, delayed jobs, locks, retries, failures and statistics of node-resque, and of Resque by its keys.",
        "Nothing: each of its transactions uses the list of all queues, or the statistics.",
        "Another namespace than resque needs a rule of its own.",
        (SlotRule("resque:*", tag="resque"),),
    ),
    Profile(
        "rq",
        "Jobs, results, retries, dependencies, schedules and the failed jobs of RQ.",
        "Nothing: each of its transactions uses the registries of all jobs.",
        "A dependent job may wait for RQ's maintenance if its slot moves. Another RQ_KEY_PREFIX needs its own rule.",
        (SlotRule("rq:*", tag="rq"),),
    ),
    Profile(
        "sidekiq",
        "Jobs, retries, schedules, several queues in one process, and the heartbeat of Sidekiq.",
        "Nothing: the heartbeat is one transaction over statistics and processes.",
        "Its processes are keys such as host:1:5f0c. So every key with two colons goes to this slot, unless a rule "
        "before it says otherwise: give Sidekiq a database of its own.",
        (
            SlotRule("queue:*", tag="sidekiq"),
            SlotRule("queues", tag="sidekiq"),
            SlotRule("schedule", tag="sidekiq"),
            SlotRule("retry", tag="sidekiq"),
            SlotRule("dead", tag="sidekiq"),
            SlotRule("processes", tag="sidekiq"),
            SlotRule("stat:*", tag="sidekiq"),
            SlotRule("*:*:*", tag="sidekiq"),
        ),
        apart=False,
    ),
)
_BY_NAME = {one.name: one for one in _PROFILES}


def profiles() -> tuple[str, ...]:
    """The names of all profiles, in their order."""
    return tuple(_BY_NAME)


def described(name: str) -> Profile:
    """A profile. Raises :class:`slots.rules.RuleError` if there is none of this name."""
    found = _BY_NAME.get(name)
    if found is None:
        raise RuleError(f"there is no profile {name!r:.100}; there are {', '.join(profiles())}")
    return found


def profile(name: str, database: int | None = None) -> tuple[SlotRule, ...]:
    """The rules of a profile, for one database or for all. Raises :class:`slots.rules.RuleError` like
    :func:`described`."""
    return tuple(replace(rule, database=database) for rule in described(name).rules)
