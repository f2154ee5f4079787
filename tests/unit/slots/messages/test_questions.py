"""Every question comes over whole from the asking worker to all of them, whatever clients have put into it."""

import json
from typing import Any, get_args

import pytest

from slots.messages import questions
from slots.messages.channel import Ask, parse_supervisor, parse_worker
from slots.messages.message import MessageError, encode
from slots.messages.questions import Asked, ClientFilter, Question
from tests.unit.slots.messages.samples import kinds_of, with_field

FILTER = ClientFilter(ids=[1], kind="normal", address="a\udcff", local_address="b:1", user="me", least_age=5, but=2)
QUESTIONS: list[Asked] = [
    questions.Clients(filter=FILTER),
    questions.KillClients(filter=FILTER, asker=3),
    questions.ClientCounts(),
    questions.WorkerCounters(),
    questions.SlowLog(count=3),
    questions.SlowLogLength(),
    questions.SlowLogReset(),
    questions.CommandStatistics(),
    questions.Script(name="f" * 40),
    questions.ScriptLoaded(body="return 1"),
    questions.ScriptsKnown(names=["f" * 40]),
    questions.ScriptsFlushed(bodies=True),
    questions.Unblock(number=-1, error=True),
    questions.Redirected(targets=[questions.RedirectedTo(number=7, user="a\udcff", words=["*1\r\n$1\r\n\xff\r\n"])]),
]
WRONG_QUESTIONS: list[tuple[str, str, Any]] = [
    *(("clients", "filter", value) for value in (None, {"more": 1}, {"ids": "1"}, {"ids": ["1"]}, {"kind": 1})),
    *(("clients", "filter", {name: 1}) for name in ("address", "local_address", "user")),
    *(("clients", "filter", {name: value}) for name in ("least_age", "but") for value in ("1", 2**63, 10**400)),
    ("clients", "filter", {"ids": [2**63]}),
    ("kill_clients", "filter", None),
    *(("kill_clients", "asker", value) for value in (None, 2**63)),
    *(("slow_log", "count", value) for value in ("1", 2**63)),
    ("script", "name", 1),
    ("script_loaded", "body", None),
    *(("scripts_known", "names", value) for value in (None, [1])),
    ("scripts_flushed", "bodies", 1),
    *(("unblock", "number", value) for value in ("1", 1.5, 2**63, -(2**63) - 1)),
    ("unblock", "error", 1),
    *(("redirected", "targets", value) for value in (None, [1], [{"number": 1, "user": 1, "words": []}])),
]
WIRE = {question.what: json.loads(encode(Ask(id=1, question=question))) for question in QUESTIONS}  # type: ignore[arg-type]


def test_every_question_has_a_sample_and_of_every_field_a_wrong_value_is_tried() -> None:
    assert {type(question) for question in QUESTIONS} == kinds_of(get_args(Question)[0])
    fields = {(asked.what, field) for asked in QUESTIONS for field in type(asked).model_fields if field != "what"}
    assert fields == {(what, field) for what, field, _ in WRONG_QUESTIONS}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.what)
def test_a_question_comes_over_whole_both_ways(question: Question) -> None:
    message = Ask(id=1, question=question)
    assert parse_worker(encode(message).encode()) == parse_supervisor(encode(message).encode()) == message


@pytest.mark.parametrize(("what", "field", "value"), WRONG_QUESTIONS, ids=lambda value: str(value)[:20])
def test_a_question_that_no_worker_asks_is_refused(what: str, field: str, value: Any) -> None:
    with pytest.raises(MessageError, match=rf"^ask\.question\.{what}\.{field}"):
        parse_supervisor(json.dumps(with_field(WIRE[what], f"question.{field}", value)).encode())


@pytest.mark.parametrize("what", WIRE)
def test_an_unknown_field_of_a_question_is_refused(what: str) -> None:
    with pytest.raises(MessageError, match=rf"^ask\.question\.{what}\.more: Extra inputs are not permitted"):
        parse_supervisor(json.dumps(with_field(WIRE[what], "question.more", 1)).encode())
