"""SIGHUP, by which a process is told to read its settings anew (:mod:`slots.reloading`), before and without that."""

import signal


class EarlyHangups:
    """SIGHUP of a process that has begun, and does not serve yet.

    It would end the process, as it ends any program. And what the process has read by then may be from before the
    change that the signal is about, so it is heard later, and not ignored.
    """

    def __init__(self) -> None:
        self.came = False

    def expect(self) -> None:
        """Keep SIGHUP from ending this process. It counts once :func:`slots.reloading.on_hangup` was called."""
        signal.signal(signal.SIGHUP, lambda number, frame: setattr(self, "came", True))


early_hangups = EarlyHangups()


def ignore_hangups() -> None:
    """Have SIGHUP do nothing: another process tells this one about settings."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
