"""ACL: the users of the proxy and what they may do, in Redis's words. They are changed by the setting ``users``."""

from collections.abc import Callable

from proxy.commands import replies
from proxy.commands.clients.authentication import Authentication
from proxy.commands.family import Family, Handler
from proxy.commands.state import user_name
from proxy.engine.outcomes import Outcome
from proxy.engine.session import Session
from proxy.users import User
from slots import commands
from slots.commands import Command, CommandError, KeysError, UnknownCommandError
from slots.rights import known_categories


class AccessList(Family):
    """The family's handlers.

    Args:
        authentication: has the users.
        find: gives the row of a request.
    """

    def __init__(self, authentication: Authentication, find: Callable[[list[bytes]], Command]) -> None:
        self._authentication = authentication
        self._find = find

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            "ACL|CAT": self.categories,
            "ACL|DRYRUN": self.try_out,
            "ACL|GETUSER": self.user,
            "ACL|LIST": self.lines,
            "ACL|USERS": self.users,
            "ACL|WHOAMI": self.whoami,
        }

    def whoami(self, session: Session, argv: list[bytes]) -> Outcome:
        """ACL WHOAMI."""
        return replies.bulk(user_name(session))

    def users(self, session: Session, argv: list[bytes]) -> Outcome:
        """ACL USERS."""
        return replies.array(map(replies.bulk, sorted(user.name for user in self._authentication.users)))

    def lines(self, session: Session, argv: list[bytes]) -> Outcome:
        """ACL LIST."""
        users = sorted(self._authentication.users, key=lambda user: user.name)
        return replies.array(_bulk(_line(user)) for user in users)

    def user(self, session: Session, argv: list[bytes]) -> Outcome:
        """ACL GETUSER name: the fields of Redis, then ours where the user has them."""
        user = self._found(argv[2])
        if user is None:
            return replies.null(session.protocol)
        flags = ["on"] if user.digest is not None else ["on", "nopass"]
        fields = {
            "flags": replies.flags(flags, session.protocol),
            "passwords": replies.array(map(replies.bulk, _digests(user))),
            "commands": _bulk(user.rights.commands_shown),
            "keys": _bulk(user.rights.keys_shown),
            "channels": _bulk(user.rights.channels_shown),
            "selectors": replies.array([]),
        }
        if user.databases is not None:
            fields["databases"] = replies.array(map(replies.integer, sorted(user.databases)))
        if user.prefix:
            fields["prefix"] = replies.bulk(user.prefix)
        if user.networks:
            fields["addresses"] = replies.array(replies.bulk(str(network)) for network in user.networks)
        if user.connections is not None:
            fields["connections"] = replies.integer(user.connections)
        for name, limit in (
            ("requests_per_second", user.requests_per_second),
            ("bytes_per_second", user.bytes_per_second),
            ("worker_percent", user.worker_percent),
        ):
            if limit:
                fields[name] = replies.integer(limit)
                fields["over_limit"] = replies.bulk(user.over_limit)
        if user.sheddable is not None:
            fields["sheddable"] = replies.bulk(user.sheddable.commands_shown)
        if user.cached_reads:
            fields["cached_reads"] = replies.bulk("yes")
        return replies.mapping(fields, session.protocol)

    def categories(self, session: Session, argv: list[bytes]) -> Outcome:
        """ACL CAT [category]."""
        if len(argv) == 2:
            return replies.array(map(replies.bulk, known_categories()))
        if len(argv) > 3:
            return b"-ERR unknown subcommand or wrong number of arguments for 'CAT'. Try ACL HELP.\r\n"
        wanted = replies.shown(argv[2])
        if wanted.lower() not in known_categories():
            return replies.error(f"ERR Unknown category '{wanted}'")
        rows = commands.table().values()
        return replies.array(replies.bulk(row.name.lower()) for row in rows if wanted.lower() in row.categories)

    def try_out(self, session: Session, argv: list[bytes]) -> Outcome:
        """ACL DRYRUN user command [argument ...]: whether the user may send this, whatever its database."""
        user = self._found(argv[2])
        if user is None:
            return replies.error(f"ERR User '{replies.shown(argv[2])}' not found")
        try:
            verdict = self._authentication.verdict(user, self._find(argv[3:]), argv[3:])
        except UnknownCommandError:
            return replies.error(f"ERR Command '{replies.shown(argv[3])}' not found")
        except (CommandError, KeysError) as error:
            return replies.error(str(error))
        return replies.OK if verdict is None else _bulk(verdict)

    def _found(self, name: bytes) -> User | None:
        return self._authentication.users.find(name.decode(errors="surrogateescape"))


def _line(user: User) -> str:
    """A user as ACL SETUSER would take it. The databases are in the words of Valkey."""
    rights = user.rights
    words = ["user", user.name, "on", *([] if user.digest is not None else ["nopass"])]
    words += [f"#{digest}" for digest in _digests(user)]
    words += [rights.keys_shown] if rights.keys_shown else []
    words += [rights.channels_shown] if rights.channels is None else ["resetchannels", rights.channels_shown]
    words += [rights.commands_shown]
    if user.databases is not None:
        words += ["resetdbs", f"db={','.join(map(str, sorted(user.databases)))}"]
    words += [f"prefix={user.prefix.decode()}"] if user.prefix else []
    return " ".join(filter(None, words))


def _digests(user: User) -> list[str]:
    return [user.digest.hex()] if user.digest is not None else []


def _bulk(text: str) -> bytes:
    return replies.bulk(text.encode("utf-8", "surrogateescape"))
