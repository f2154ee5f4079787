TYPES: tuple[str, ...]
ENCODINGS: tuple[str, ...]
