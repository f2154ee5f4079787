"""The migrator as topom uses it: one product's functions and secrets, one pace for all batches together."""

from collections.abc import Sequence

from migrator.move import migrate
from migrator.pace import Pace, PaceSettings
from migrator.progress import Progress
from slots.access import ServerAccess
from topom.state import MigrationSettings, Product


class RedisMover:
    """Moves slots between Redis servers. It is the :class:`topom.actions.Mover` of a real topom."""

    def __init__(self, product: Product, access: ServerAccess, instance: str) -> None:
        self._product = product
        self._access = access
        self._instance = instance
        self._pace = Pace()

    async def move(self, source: str, target: str, slots: Sequence[int], progress: Progress) -> None:
        """Return once **complete** holds for these slots. Raises :class:`migrator.errors.MigrationError`."""
        await migrate(
            source,
            target,
            slots,
            function=self._product.slot_function,
            number_of_slots=self._product.number_of_slots,
            access=self._access,
            pace=self._pace,
            progress=progress,
            instance=self._instance,
        )

    def set_pace(self, settings: MigrationSettings) -> None:
        """Let these settings hold from the next MIGRATE on. Raises :class:`ValueError` for one out of range."""
        self._pace.change(
            PaceSettings(
                keys_per_second=settings.keys_per_second,
                bytes_per_second=settings.bytes_per_second,
                batch_keys=settings.batch_keys,
                batch_bytes=settings.batch_bytes,
                batch_milliseconds=settings.batch_milliseconds,
            )
        )
        if settings.paused:
            self._pace.pause()
        else:
            self._pace.resume()
