"""The formats of what outlives a process: on disks, in stores and at Redis servers. docs/formats.md lists them.

One rule holds for all. What is kept says the number of its format. A reader looks at that number before anything else.
Any number but its own it refuses, with a sentence that says what to do, and it changes nothing there. Within one
format, a later version may add fields: earlier ones pass over those that they do not know. Whatever an earlier version
would misread, or must not lose, takes a new number.
"""

from dataclasses import dataclass

WRITER = "use the version of Slotferry that wrote it"
"""What to do about another format, in every sentence about one."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    Attributes:
        name: as docs/formats.md has it.
        number: that this version writes, and reads.
    """

    name: str
    number: int

    def reads(self, found: object) -> bool:
        """Whether what says that it has this format can be read."""
        return type(found) is int and found == self.number

    def refusal(self, what: str, found: object) -> str:
        """Why ``what`` cannot be read, which says that it has the format ``found``."""
        from slots.version import program_version  # it loads what few commands need

        said = f"format {found!s:.20}" if found is not None else "no format"
        return f"{what} has {said}, and this version of Slotferry, {program_version()}, reads format {self.number}"


STORE = Format("the store of topom", 1)
SERVERS = Format("Slotferry's keys at Redis servers", 1)
TABLE_FILE = Format("the table file of a proxy", 1)
CONTEXTS = Format("the file of contexts", 1)
SIZING = Format("the folder of a sizing", 1)
FORMATS = (STORE, SERVERS, TABLE_FILE, CONTEXTS, SIZING)
