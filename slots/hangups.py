"""SIGHUP, by which a process is told to read its settings anew (:mod:`slots.reloading`), before that is possible.

What another process of ours tells of settings ignores it (:data:`slots.python.TOLD`).
"""

import os
import signal
from types import FrameType


class EarlyHangups:
    """SIGHUP of a process that has begun, and does not serve yet.

    It would end the process, as it ends any program. And what the process has read by then may be from before the
    change that the signal is about, so it is heard later, and not ignored.
    """

    def __init__(self) -> None:
        self.came = False
        self._former: object = signal.SIG_DFL

    def expect(self) -> None:
        """Keep SIGHUP from ending this process. It counts once :func:`slots.reloading.on_hangup` was called."""
        self._former = signal.signal(signal.SIGHUP, self._note)

    def over(self) -> None:
        """This process will not serve: SIGHUP does what it does to any program, also if it has come."""
        signal.signal(signal.SIGHUP, self._former)  # type: ignore[arg-type]
        if self.came:
            os.kill(os.getpid(), signal.SIGHUP)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True


early_hangups = EarlyHangups()
