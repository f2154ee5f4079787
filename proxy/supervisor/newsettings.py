"""Settings that are read anew while the proxy runs: the workers get them, and topom is told what came of its question.

A worker that is started gets the settings in force with its first message. One that runs is sent them, and says when it
uses them. **bounded**: topom's answer waits :data:`FOLLOW_SECONDS` for that, and tells how many workers are behind. At
most :data:`MOST_OPEN` answers wait.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

from proxy.settings import ProxySettings
from proxy.supervisor.processes import Worker
from slots.messages import channel
from slots.messages.control import News, Registered, Reload, Reloaded
from slots.messages.message import sentence
from slots.reloading import Reloading
from slots.settings import SettingsError

FOLLOW_SECONDS = 3.0
MOST_OPEN = 16


class NewSettings:
    """Passes settings on, and answers topom (:class:`proxy.supervisor.control.Listener`).

    Args:
        reloading: reads the settings of the proxy.
        workers: those that live.
        addresses: the true addresses where the proxy listens, by the setting that names the place.
        send: sends an answer to topom.
    """

    def __init__(
        self,
        reloading: Reloading[ProxySettings],
        workers: Callable[[], Collection[Worker]],
        addresses: Callable[[], Mapping[str, str]],
        send: Callable[[Reloaded], None],
    ) -> None:
        self._reloading = reloading
        self._workers = workers
        self._addresses = addresses
        self._send = send
        self._number = 0
        self._open: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    def wire(self, settings: ProxySettings) -> dict[str, object]:
        """Settings as a worker gets them, with the true addresses."""
        return {**settings.to_wire(), **self._addresses()}

    def tell(self, settings: ProxySettings) -> None:
        """Send these settings to every worker."""
        self._number += 1
        wire = self.wire(settings)
        for worker in self._workers():
            worker.settings_due = self._number
            worker.send(channel.Settings(number=self._number, settings=wire))

    def taken(self, worker: Worker, number: int) -> None:
        """A worker uses the settings of that number."""
        if worker.settings_due == number:
            worker.settings_due = 0
        self._news.set()

    def ended(self) -> None:
        """A worker has ended: nobody waits for it any more."""
        self._news.set()

    @property
    def are_followed(self) -> bool:
        """Whether all workers use the settings that they were told last."""
        return not any(worker.settings_due for worker in self._workers())

    async def _answer(self, number: int, changed: tuple[str, ...], refused: str) -> None:
        try:
            async with asyncio.timeout(FOLLOW_SECONDS):
                while not self.are_followed:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass  # the answer says who is behind
        self._say(number, changed, refused)

    def _say(self, number: int, changed: tuple[str, ...], refused: str) -> None:
        known = self._reloading
        due = [worker.settings_due for worker in self._workers()]
        self._send(
            Reloaded(
                number=number,
                file=sentence(known.file),
                since=known.since,
                changed=list(changed),
                restart=list(known.restart),
                hidden=list(known.hidden),
                refused=sentence(refused),
                workers=len(due),
                following=due.count(0),
            )
        )

    # -- what topom says (proxy.supervisor.control.Listener) ----------------------------------------------------------

    def registered(self, answer: Registered) -> None:
        """topom asks when an operator does."""

    def heard(self, message: News) -> None:
        """Read the settings anew, and answer."""
        if not isinstance(message, Reload):
            return
        if len(self._open) >= MOST_OPEN:
            self._say(message.number, (), f"{MOST_OPEN} questions wait for an answer; ask again in a while")
            return
        changed: tuple[str, ...] = ()
        refused = ""
        try:
            changed = self._reloading.reload()
        except SettingsError as error:
            refused = str(error)
        task = asyncio.create_task(self._answer(message.number, changed, refused))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    def lost(self) -> None:
        """The stream has ended: what was asked over it is not answered over another one."""
        for task in self._open:
            task.cancel()
