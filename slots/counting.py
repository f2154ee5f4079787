"""Numbers of things in words."""


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things: ``1 slot``, ``2 slots``. ``many`` where an ``s`` does not make the plural."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
