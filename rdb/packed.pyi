from collections.abc import Iterator

FORMS: tuple[str, ...]

class Packed(Iterator[bytes]):
    def __init__(self, blob: bytes, form: int) -> None: ...
    def __next__(self) -> bytes: ...
