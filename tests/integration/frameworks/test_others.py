"""Frameworks in JavaScript, Ruby and PHP, with their default settings and their own workers, while all slots move."""

import pytest

from tests.integration.frameworks.conftest import StartProduct
from tests.integration.frameworks.frameworks import Framework, assert_needs_rules, assert_works

FRAMEWORKS = (
    Framework("bullmq", "bullmq.mjs", ["bullmq"]),
    Framework("bullmq-flows", "bullmq.mjs", ["bullmq-flows"], "flows", "probe-flows"),
    Framework("laravel", "laravel_jobs.php", ["laravel"]),
    Framework("resque", "resque.mjs", ["resque"]),
    Framework("sidekiq", "sidekiq_jobs.rb", ["sidekiq"]),
)


@pytest.mark.long
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.name)
async def test_it_works_as_on_one_redis(
    framework: Framework, start_product: StartProduct, one_redis: tuple[str, int]
) -> None:
    await assert_works(framework, await start_product(*framework.profiles), one_redis)


@pytest.mark.long
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.name)
async def test_it_needs_its_profile(framework: Framework, start_product: StartProduct) -> None:
    await assert_needs_rules(framework, await start_product())
