"""The supervisor's own figures, as topom and Prometheus are told them."""

from proxy.settings import ProxySettings
from proxy.supervisor.acknowledging import Acknowledgements
from proxy.supervisor.control import Control
from proxy.supervisor.leftovers import Leftovers
from proxy.supervisor.metrics import Number
from proxy.supervisor.standdown.standdown import StandDown
from proxy.supervisor.workforce import Workforce
from slots.reloading import Reloading


class Figures:
    """Looks at the parts of a proxy, which has so many ``seats`` for workers."""

    def __init__(
        self,
        seats: int,
        reloading: Reloading[ProxySettings],
        acknowledgements: Acknowledgements,
        control: Control,
        standdown: StandDown,
        workforce: Workforce,
        leftovers: Leftovers,
    ) -> None:
        self._seats = seats
        self._reloading = reloading
        self._acks = acknowledgements
        self._control = control
        self._standdown = standdown
        self._workforce = workforce
        self._leftovers = leftovers

    def of_settings(self) -> dict[str, Number]:
        """What is told of the settings; the log has names and sentences."""
        known = self._reloading
        return {
            "settings_since": round(known.since, 3),
            "settings_restart": len(known.restart),
            "settings_refused": int(bool(known.refused)),
        }

    def all(self) -> dict[str, tuple[str, Number]]:
        """For Prometheus: by name, help and value."""
        settings = self.of_settings()
        return {
            "settings_since_seconds": ("When the settings in force were read.", settings["settings_since"]),
            "settings_restart": ("Settings that differ in the file and need a restart.", settings["settings_restart"]),
            "settings_refused": (
                "1 if the settings could not be used when they were read last.",
                settings["settings_refused"],
            ),
            "epoch": ("Epoch of the slot table that all workers apply.", self._acks.acked),
            "topom_connected": ("1 while the control stream to topom stands.", int(self._control.connected)),
            "groups_stood_down": (
                "Groups that are not served because neither topom nor all of their replicas answer.",
                len(self._standdown.groups_over()),
            ),
            "workers": ("Worker processes that there should be.", self._seats),
            "workers_ready": ("Worker processes that serve clients.", self._workforce.ready),
            "servers_with_leftover_connections": (
                "Servers where a dead worker's connections may live.",
                len(self._leftovers.servers),
            ),
        }
