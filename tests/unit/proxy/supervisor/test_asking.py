import asyncio
from typing import Any

import pytest

from proxy.channel import ChannelError, MessageTooLong
from proxy.supervisor import asking
from proxy.supervisor.asking import Questions
from slots.messages.channel import Answer, Answers, Ask
from slots.messages.questions import ClientCounts, SlowLog


class Peer:
    def __init__(self, index: int) -> None:
        self.index = index
        self.got: asyncio.Queue[Any] = asyncio.Queue()

    def send(self, message: Ask | Answers) -> None:
        self.got.put_nowait(message)


@pytest.fixture
def peers() -> list[Peer]:
    return [Peer(0), Peer(1)]


async def test_all_are_asked_and_answers_come_by_index(peers: list[Peer]) -> None:
    questions = Questions(lambda: peers)
    questions.ask(peers[1], Ask(id=7, question=SlowLog(count=1)))
    asked = [peer.got.get_nowait() for peer in peers]
    assert [one.question for one in asked] == [SlowLog(count=1)] * 2
    questions.answer(peers[1], Answer(id=asked[1].id, answer="second"))
    questions.answer(peers[0], Answer(id=asked[0].id, answer="first"))
    assert peers[1].got.get_nowait() == Answers(id=7, answers=["first", "second"])


async def test_who_does_not_answer_in_time_is_left_out(peers: list[Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ANSWER_SECONDS", 0.01)
    questions = Questions(lambda: peers)
    questions.ask(peers[0], Ask(id=1, question=ClientCounts()))
    number = peers[0].got.get_nowait().id
    questions.answer(peers[1], Answer(id=number, answer="x"))
    assert await peers[0].got.get() == Answers(id=1, answers=["x"])
    questions.answer(peers[0], Answer(id=number, answer="late"))
    assert peers[0].got.empty()


async def test_nobody_waits_for_the_dead(peers: list[Peer]) -> None:
    questions = Questions(lambda: peers)
    questions.ask(peers[0], Ask(id=1, question=ClientCounts()))
    questions.answer(peers[0], Answer(id=peers[0].got.get_nowait().id, answer="x"))
    questions.forget_worker(peers[1])
    assert peers[0].got.get_nowait().answers == ["x"]


async def test_a_dead_asker_is_forgotten(peers: list[Peer]) -> None:
    questions = Questions(lambda: peers)
    questions.ask(peers[0], Ask(id=1, question=ClientCounts()))
    number = peers[1].got.get_nowait().id
    questions.forget_worker(peers[0])
    questions.answer(peers[1], Answer(id=number, answer="x"))
    assert peers[0].got.qsize() == 1  # the question itself


async def test_too_many_questions_are_answered_with_nothing(peers: list[Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "OPEN_QUESTIONS", 1)
    questions = Questions(lambda: peers)
    for number in (1, 2):
        questions.ask(peers[0], Ask(id=number, question=ClientCounts()))
    assert isinstance(peers[0].got.get_nowait(), Ask)
    assert peers[0].got.get_nowait() == Answers(id=2, answers=[])


async def test_answers_that_are_too_long_together_are_dropped(peers: list[Peer]) -> None:
    class Narrow(Peer):
        def send(self, message: Ask | Answers) -> None:
            if isinstance(message, Answers) and message.answers:
                raise MessageTooLong
            super().send(message)

    asker = Narrow(0)
    questions = Questions(lambda: [asker])
    questions.ask(asker, Ask(id=1, question=ClientCounts()))
    questions.answer(asker, Answer(id=asker.got.get_nowait().id, answer="x"))
    assert asker.got.get_nowait().answers == []


async def test_a_question_that_is_too_long_to_be_passed_on_is_answered_with_nothing(peers: list[Peer]) -> None:
    """Its number here may be longer than the asker's."""

    class Narrow(Peer):
        def send(self, message: Ask | Answers) -> None:
            if isinstance(message, Ask):
                raise MessageTooLong
            super().send(message)

    narrow = Narrow(0)
    questions = Questions(lambda: [narrow, Narrow(1)])
    questions.ask(narrow, Ask(id=7, question=ClientCounts()))
    assert narrow.got.get_nowait() == Answers(id=7, answers=[])


async def test_a_worker_that_does_not_read_is_not_waited_for_and_ends_no_other(peers: list[Peer]) -> None:
    class Stuck(Peer):
        def send(self, message: Ask | Answers) -> None:
            raise ChannelError

    stuck = Stuck(1)
    questions = Questions(lambda: [peers[0], stuck])
    questions.ask(peers[0], Ask(id=7, question=ClientCounts()))
    asked = peers[0].got.get_nowait()
    questions.answer(peers[0], Answer(id=asked.id, answer="mine"))
    assert peers[0].got.get_nowait() == Answers(id=7, answers=["mine"])
    # As the asker, too.
    questions.ask(stuck, Ask(id=1, question=ClientCounts()))
    asked = peers[0].got.get_nowait()
    questions.answer(peers[0], Answer(id=asked.id, answer="mine"))
