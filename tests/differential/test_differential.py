"""A proxy gives the replies of one Redis, whatever is behind it: on random examples, and on all that once differed.

Commands over several slots, which several servers cannot do, are refused with Redis Cluster's words.

``python -m tests.differential --minutes 30`` goes on for longer, with other examples each time.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests import searching
from tests.differential.catalogue import lines
from tests.differential.crossslot import COMMANDS, OVER_SLOTS, in_one_slot, names_both
from tests.differential.examples import Example, examples
from tests.differential.regressions import EXAMPLES
from tests.differential.runner import Runner
from tests.differential.sides import Control
from tests.differential.topologies import OF_USERS, TOPOLOGIES
from tests.differential.users import USERS, User

RANDOM = searching.examples(70)
"""Examples of thirty commands or so, in each topology."""
ONE_SLOT = [name for name, topology in TOPOLOGIES.items() if topology.one_slot]
SEVERAL_SLOTS = [name for name, topology in TOPOLOGIES.items() if not topology.one_slot and not topology.users]


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_what_once_differed(runner: Runner, example: Example) -> None:
    runner.run(example)


def test_random_commands(runner: Runner) -> None:
    compare_random_commands(runner, RANDOM)


@pytest.mark.long
@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
@pytest.mark.parametrize("runner", OF_USERS, indirect=True)
def test_random_commands_of_users(runner: Runner, user: User) -> None:
    compare_random_commands(runner, RANDOM // 2, user)


def compare_random_commands(runner: Runner, most: int, user: User | None = None) -> None:
    before = runner.compared

    @settings(
        max_examples=most,
        # The examples are the same each time, so that a failure comes from a change and not from chance.
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(example=examples(one_slot=runner.one_slot or (user is not None and user.one_slot)))
    def run(example: Example) -> None:
        runner.run(example, user)

    run()
    assert runner.compared - before > most * 10
    assert runner.given_up <= (RANDOM // 10 if runner.moving else 0)


@pytest.fixture
def proxy(runner: Runner) -> Iterator[Control]:
    """A connection to the proxy, which has no keys."""
    runner.forget_everything()
    connection = Control(runner.proxy.address)
    connection.ask((b"SCRIPT", b"LOAD", b"return 1"))
    yield connection
    connection.close()


@pytest.mark.parametrize("line", lines(COMMANDS + OVER_SLOTS))
@pytest.mark.parametrize("runner", ONE_SLOT, indirect=True)
def test_what_needs_one_slot_where_all_is_one(runner: Runner, line: str) -> None:
    runner.run(in_one_slot(line))


@pytest.mark.parametrize("line", lines(COMMANDS))
@pytest.mark.parametrize("runner", SEVERAL_SLOTS, indirect=True)
def test_keys_of_several_slots(proxy: Control, line: str) -> None:
    proxy.ask((b"SET", b"{a}x", b"1"))
    command = line.encode().split()
    refused, *others = proxy.ask(command, (b"GET", b"{a}x"), (b"EXISTS", b"{b}x"))
    assert names_both(refused)
    assert others == [b"$1\r\n1\r\n", b":0\r\n"]
    if command[0] != b"WATCH":
        refused_in_a_transaction(proxy, command)


@pytest.mark.parametrize("line", lines(OVER_SLOTS))
@pytest.mark.parametrize("runner", SEVERAL_SLOTS, indirect=True)
def test_what_works_over_slots_is_refused_in_a_transaction(proxy: Control, line: str) -> None:
    refused_in_a_transaction(proxy, line.encode().split())


def refused_in_a_transaction(proxy: Control, command: list[bytes]) -> None:
    """A transaction too is of one slot, and given up as a whole."""
    _, refused, aborted = proxy.ask((b"MULTI",), command, (b"EXEC",))
    assert names_both(refused)
    assert aborted == b"-EXECABORT Transaction discarded because of previous errors.\r\n"


@pytest.mark.parametrize("runner", SEVERAL_SLOTS, indirect=True)
def test_a_transaction_of_several_slots(proxy: Control) -> None:
    replies = proxy.ask((b"MULTI",), (b"SET", b"{a}y", b"1"), (b"SET", b"{b}y", b"1"), (b"EXEC",), (b"EXISTS", b"{a}y"))
    assert names_both(replies[2])
    assert replies == [
        b"+OK\r\n",
        b"+QUEUED\r\n",
        replies[2],
        b"-EXECABORT Transaction discarded because of previous errors.\r\n",
        b":0\r\n",
    ]
