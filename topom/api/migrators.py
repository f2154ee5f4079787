"""Migrators: the processes that make copies by the replication stream."""

from topom.api import migrator_models as models
from topom.api.access import ServedTopom
from topom.api.routers import resource
from topom.migrators.copies import RemoteCopy
from topom.migrators.members import Migrator
from topom.term.service import Topom

router = resource("/migrators", "migrators")


def describe(topom: Topom) -> list[models.Migrator]:
    """Every migrator, by id."""
    return [_describe(one) for one in topom.migrators.all()]


@router.get("")
async def list_migrators(topom: ServedTopom) -> models.Migrators:
    """The processes that make copies by the replication stream, as far as they are registered now."""
    return models.Migrators(migrators=describe(topom))


def _describe(one: Migrator) -> models.Migrator:
    registration = one.registration
    copies = [copy for copy in one.copies.values() if isinstance(copy, RemoteCopy)]
    return models.Migrator(
        id=one.id,
        instance=registration.instance,
        hostname=registration.hostname,
        pid=registration.pid,
        version=registration.version,
        node=registration.node,
        datacenter=registration.datacenter,
        own=one.own,
        disk_bytes=one.disk,
        keys_per_second=round(sum(copy.progress.keys_per_second for copy in copies), 1),
        copies=[_describe_copy(copy) for copy in copies],
    )


def _describe_copy(copy: RemoteCopy) -> models.MigratorCopy:
    followed = copy.progress.followed or None
    return models.MigratorCopy(
        source=copy.source,
        target=copy.target,
        slots=len(copy.slots),
        followed=followed,
        follows=None if followed is None else "master" if followed == copy.source else "replica",
        keys_moved=copy.progress.keys_moved,
        bytes_moved=copy.progress.bytes_moved,
        keys_per_second=round(copy.progress.keys_per_second, 1),
        lag_bytes=copy.lag,
    )
