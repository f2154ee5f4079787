"""Frameworks in Python, with their default settings and their own workers, while all slots move."""

import pytest

from tests.integration.frameworks.conftest import StartProduct
from tests.integration.frameworks.frameworks import Framework, assert_needs_rules, assert_works

FRAMEWORKS = (
    Framework("arq", "arq_jobs.py", ["arq"], apart="arq"),
    Framework("celery", "celery_jobs.py", ["celery"]),
    Framework("django", "django_cache.py", ["django"]),
    Framework("huey", "huey_jobs.py", []),
    Framework("redis-lock", "redis_lock_jobs.py", ["redis-lock"]),
    Framework("rq", "rq_jobs.py", ["rq"]),
)
NEED_RULES = [one for one in FRAMEWORKS if one.profiles]


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.name)
async def test_it_works_as_on_one_redis(
    framework: Framework, start_product: StartProduct, one_redis: tuple[str, int]
) -> None:
    await assert_works(framework, await start_product(*framework.profiles), one_redis)


@pytest.mark.long
@pytest.mark.parametrize("framework", NEED_RULES, ids=lambda one: one.name)
async def test_it_needs_its_profile(framework: Framework, start_product: StartProduct) -> None:
    await assert_needs_rules(framework, await start_product())
