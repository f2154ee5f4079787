"""Compares random commands for longer: ``python -m tests.differential --minutes 30``; prints how many were compared.

A difference is printed as an example, as small as possible, to be kept in ``regressions.py``.
"""

import argparse
import sys
import time

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.differential.examples import Example, examples
from tests.differential.runner import Runner
from tests.differential.topologies import TOPOLOGIES, cluster_of, plain_redis, runner_of
from tests.differential.users import USERS, User

ROUND = 200
"""Examples between looks at the clock."""


def _compare(runner: Runner, number: int, kinds: tuple[str, ...], one_slot: bool, user: User | None) -> None:
    """Run :data:`ROUND` examples."""

    @seed(number)
    @settings(
        max_examples=ROUND,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(example=examples(kinds, one_slot))
    def run(example: Example) -> None:
        runner.run(example, user)

    run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="for each topology (10)")
    parser.add_argument("--topology", choices=TOPOLOGIES, action="append", help="all, when none is named")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="of the first round; by chance")
    parser.add_argument("--user", choices=USERS, help="of the topology users (a tenant)", default="a tenant")
    parser.add_argument("--kinds", default="", help="only these kinds of blocks, as in data,transaction")
    arguments = parser.parse_args()
    kinds = tuple(filter(None, arguments.kinds.split(",")))
    total = 0
    for name in arguments.topology or TOPOLOGIES:
        topology = TOPOLOGIES[name]
        user = USERS[arguments.user] if topology.users else None
        one_slot = topology.one_slot or (user is not None and user.one_slot)
        with (
            cluster_of(topology) as (cluster, mover),
            plain_redis() as redis,
            runner_of(topology, cluster, redis) as runner,
        ):
            print(f"{name}: seed {arguments.seed}", flush=True)
            begun = time.monotonic()
            number = arguments.seed
            while time.monotonic() < begun + arguments.minutes * 60:
                _compare(runner, number, kinds, one_slot, user)
                number += 1
            moved = f", while all slots moved {mover.moves} times" if mover is not None else ""
            if runner.given_up:
                moved += f" ({runner.given_up} examples not to their end)"
            seconds = time.monotonic() - begun
            print(f"{name}: {runner.compared} replies of {runner.examples} examples compared{moved}, {seconds:.0f} s")
            total += runner.compared
    print(f"{total} replies compared, all the same", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
