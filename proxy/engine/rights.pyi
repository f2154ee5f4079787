from collections.abc import Sequence

FREE: int
DECIDED: int
KEYED: int

class CommandRights:
    def __init__(self, needs: bytes, patterns: Sequence[tuple[bytes, int]]) -> None: ...
