"""Users of a proxy beside users of Redis's ACL with the same rights."""

from dataclasses import dataclass

from slots.keyslots import KeySlots
from slots.rules import SlotRule
from tests.differential.model import Command, name

PASSWORD = "secret"
TENANT_DATABASE = 5
"""One that no example names."""
ALL_IN_ONE = SlotRule("*", TENANT_DATABASE, "five")
"""The database of a tenant is one slot."""
SCRIPTS = "-eval -evalsha -fcall"
"""What may write, whatever the script says."""
FOR_ALL_DATABASES = f"{SCRIPTS} -eval_ro -evalsha_ro -fcall_ro -script -function -flushall"
WRITE_REFUSED = b"-ERR Write commands are not allowed from read-only scripts."
USER_REFUSED = b"-ERR The user executing the script can't run this command or subcommand"


@dataclass(frozen=True)
class User:
    """One user.

    Attributes:
        settings: of the proxy's user, but for name and password.
        rights: of the ACL's.
        database: the one that it may use; None for all.
        prefix: of its keys; empty for none.
    """

    name: str
    settings: tuple[tuple[str, object], ...]
    rights: str
    database: int | None = None
    prefix: bytes = b""

    @property
    def one_slot(self) -> bool:
        """Whether its keys have one slot."""
        return self.database is not None or bool(self.prefix)

    @property
    def entry(self) -> dict[str, object]:
        """It in the setting ``users`` of a proxy."""
        return {"name": self.name, "password": PASSWORD, **dict(self.settings)}

    @property
    def login(self) -> tuple[Command, ...]:
        """What its client sends first."""
        select = () if self.database is None else ((b"SELECT", b"%d" % self.database),)
        return ((b"AUTH", self.name.encode(), PASSWORD.encode()), *select)

    @property
    def acl(self) -> Command:
        """Makes it a user of Redis."""
        return tuple(f"ACL SETUSER {self.name} reset on >{PASSWORD} ~* &* +@all {self.rights}".encode().split())

    def same_refusal(self, command: Command, ours: bytes, theirs: bytes) -> bool:
        """Whether both refuse, in other words: what a user with a prefix may not do; or a write of a script that may
        only read, the one for the script's sake, Redis for the user's."""
        if self.prefix and theirs.startswith(b"-NOPERM"):
            return b" is refused to users with a prefix: " in ours
        of_script = name(command) in ("EVAL_RO", "EVALSHA_RO", "FCALL_RO")
        return of_script and ours.startswith(WRITE_REFUSED) and theirs.startswith(USER_REFUSED)

    def key_slots(self, rules: tuple[SlotRule, ...]) -> KeySlots:
        """The slots of the keys that it uses."""
        if self.prefix:
            return KeySlots("crc32", 1024, (SlotRule("*", None, "prefix"),))
        here = tuple(SlotRule(rule.pattern, None, rule.tag) for rule in rules if rule.database == self.database)
        return KeySlots("crc32", 1024, here)

    def may_leave(self, command: Command) -> bool:
        """Whether a command may end its being this user in its own database, which Redis has no limit for."""
        if not self.one_slot or command in self.login:
            return False
        called = name(command)
        if called in ("RESET", "AUTH") or (called == "HELLO" and b"AUTH" in map(bytes.upper, command)):
            return True
        if self.database is None:
            return False
        named = command[1:] if called == "SELECT" else command[2:] if called in ("MOVE", "COPY") else ()
        return any(word.isdigit() and int(word) != self.database for word in named)


NOT_WITH_PREFIX = f"{FOR_ALL_DATABASES} -flushdb -dbsize -randomkey -pubsub|numpat -@admin"
WITH_PREFIX = f"~* &* +@all {SCRIPTS} -eval_ro -evalsha_ro -fcall_ro -script"
OF_OTHERS = (b"key:1", b"{a}key:1", b"{shop}:", b"{shop}key:1")
"""Keys that somebody else has."""

USERS = {
    "a reader": User("reports", (("read_only", True),), f"-@write {SCRIPTS} -publish -spublish -script|flush -@admin"),
    "a tenant": User(
        "tenant", (("databases", [TENANT_DATABASE]),), f"{FOR_ALL_DATABASES} -@admin", database=TENANT_DATABASE
    ),
    "a reading tenant": User(
        "guest",
        (("databases", [TENANT_DATABASE]), ("read_only", True)),
        f"-@write {FOR_ALL_DATABASES} -publish -spublish -@admin",
        database=TENANT_DATABASE,
    ),
    "a prefix": User("shop", (("prefix", "{shop}:-"), ("rules", WITH_PREFIX)), NOT_WITH_PREFIX, prefix=b"{shop}:-"),
}
