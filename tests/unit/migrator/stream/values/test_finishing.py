"""The last step of a value."""

import pytest

from migrator.stream.values.finishing import finish_commands
from tests.unit.migrator.stream.values.wire import words


@pytest.mark.parametrize(("deadline", "more"), [(None, [b"PERSIST", b"t"]), (123, [b"PEXPIREAT", b"t", b"123"])])
def test_a_value_has_its_deadline_or_none_before_its_name(deadline: int | None, more: list[bytes]) -> None:
    restore, unlink, *rest = map(words, finish_commands(b"t", b"key", deadline))

    assert restore[:3] == [b"RESTORE", b"key", b"0"]
    assert unlink == [b"UNLINK", b"key"]
    assert rest == [more, [b"RENAME", b"t", b"key"]]
