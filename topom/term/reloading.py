"""The settings of this topom process in force, and reading them anew (:mod:`slots.reloading`).

Each topom reads its own file; the one that leads notes an event. The token that topom made itself, in the file
``token`` of its data folder, is read anew, too.
"""

from pathlib import Path

from slots.reloading import Reloading
from slots.settings import SettingsError
from topom.cluster.events import What, actor
from topom.term.node import Node
from topom.term.tokens import Tokens


class InForce:
    """The settings of one topom.

    Args:
        file: where they stand; None if they come from the environment alone.
        tokens: those that topom takes.
    """

    def __init__(self, node: Node, file: Path | None, tokens: Tokens) -> None:
        self.reloading = Reloading(node.settings, file)
        self._node = node
        self._tokens = tokens

    def reload(self) -> tuple[str, ...]:
        """Read the settings anew; gives the names of those that have changed.

        Raises:
            SettingsError: they cannot be used, and nothing has changed.
        """
        before = self._tokens.all
        try:
            changed = self.reloading.reload()
        except SettingsError as error:
            self._note(What.SETTINGS_REFUSED, f"the settings cannot be used, and nothing has changed: {error}")
            raise
        if self._tokens.all != before and not {"token", "tokens"}.intersection(changed):
            changed = ("token", *changed)
        self._note(What.SETTINGS_RELOADED, f"settings were read anew: {self._said(changed)}")
        return changed

    def _said(self, changed: tuple[str, ...]) -> str:
        restart = self.reloading.restart
        waiting = f"; {', '.join(restart)} differ and need a restart" if restart else ""
        return (f"{', '.join(changed)} changed" if changed else "none changed") + waiting

    def _note(self, what: What, text: str) -> None:
        leading = self._node.leading
        if leading is not None:
            leading.ledger.note(what, text, actor.get())
