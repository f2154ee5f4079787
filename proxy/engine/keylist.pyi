from proxy.engine.router import Router

HIDDEN: int
HERE: int
HERE_OR_THERE: int

class KeyList:
    kept: int
    parts: list[bytes]
    uncertain: list[bytes]
    def __init__(
        self,
        router: Router,
        database: int,
        reply: bytes,
        shown: bytes,
        reserved: bytes,
        at: int = ...,
        within: bytes = ...,
    ) -> None: ...
    def read(self, most: int) -> bool: ...
