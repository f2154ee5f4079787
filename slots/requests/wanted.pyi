from slots.keyslots import KeySlots
from slots.requests.reading import Stream

MIXED: int
UNKNOWN: int

class WantedRequests(Stream):
    database: int
    def __init__(
        self,
        key_slots: KeySlots,
        wanted: bytes | bytearray | memoryview,
        offset: int = 0,
        longest_request: int = ...,
    ) -> None: ...
    def __next__(self) -> tuple[list[bytes], int, int]: ...
