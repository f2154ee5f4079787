"""Both sides, once for all tests of this folder and each topology."""

from collections.abc import Iterator

import pytest

from tests.differential.runner import Runner
from tests.differential.topologies import TOPOLOGIES, cluster_of, plain_redis, runner_of, show_logs


@pytest.fixture(scope="package", params=[name for name, topology in TOPOLOGIES.items() if not topology.users])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Both sides, the proxy's with what is behind it."""
    topology = TOPOLOGIES[request.param]
    with (
        cluster_of(topology) as (cluster, _),
        plain_redis() as redis,
        runner_of(topology, cluster, redis) as found,
    ):
        yield found
        show_logs(cluster)
