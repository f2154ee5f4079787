import json

import pytest
from pydantic import ValidationError

from slots.messages import channel, control
from slots.messages.message import MOST_TEXT, MessageError, UnknownMessage, encode, sentence


def test_a_message_is_one_line_with_its_type_first() -> None:
    answer = channel.Answer(id=1, answer="line\nline é")
    assert encode(answer) == '{"type":"answer","id":1,"answer":"line\\nline \\u00e9"}'


def test_what_cannot_be_written_is_a_fault() -> None:
    with pytest.raises(TypeError, match="set is no part of a message"):
        encode(control.Table(table={"slots": {1}}))


def test_a_message_never_changes_and_is_checked_where_it_is_made() -> None:
    ack = control.Ack(epoch=1)
    with pytest.raises(ValidationError, match="frozen"):
        ack.epoch = 2  # type: ignore[misc]
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        control.Ack(epoch=-1)


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("nothing", MessageError, "message: Invalid JSON"),
        (b"\xff", MessageError, "message: Invalid JSON"),
        ("[" * 100_000, MessageError, "message: Invalid JSON"),
        ("7", MessageError, "message: Input should be an object"),
        ("{}", MessageError, "message: Unable to extract tag"),
        ('{"type":"ack"}', MessageError, "ack.epoch: Field required"),
        (
            '{"type":"heartbeat","epoch":1,"counters":{"a":"1"}}',
            MessageError,
            "heartbeat.counters.a.constrained-int: Input",
        ),
        ('{"type":"leaves"}', UnknownMessage, "message: Input tag 'leaves'"),
        ('{"type":"' + "x" * 100_000 + '"}', UnknownMessage, "message: Input tag 'xxx"),
    ],
)
def test_an_error_says_which_field_is_wrong(text: str, error: type[MessageError], told: str) -> None:
    with pytest.raises(MessageError) as raised:
        control.parse_proxy(text)
    assert raised.type is error
    assert str(raised.value).startswith(told)
    assert len(str(raised.value)) <= MOST_TEXT


def test_only_the_type_of_a_message_makes_it_an_unknown_one() -> None:
    with pytest.raises(MessageError, match=r"^ask\.question: Input tag 'why'") as raised:
        channel.parse_worker(b'{"type":"ask","id":1,"question":{"what":"why"}}')
    assert raised.type is MessageError


def test_a_sentence_fits_whatever_it_was_made_of() -> None:
    assert sentence("x" * MOST_TEXT) == "x" * MOST_TEXT
    assert sentence("x" * (MOST_TEXT + 1)) == "x" * (MOST_TEXT - 3) + "..."
    assert sentence("a\udcffb\x1b[31m\u202e") == "a?b?[31m?"
    assert sentence("a\r\nb\u2028c é") == "a  b c é"
    nack = control.Nack(epoch=1, reason=sentence("\udcff" * 10_000))
    assert control.parse_proxy(encode(nack)) == nack
    assert json.loads(encode(nack))["reason"].endswith("...")
