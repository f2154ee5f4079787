"""Passes questions of one worker to all of them: CLIENT LIST and INFO show the whole proxy, not one process."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from proxy.channel import ChannelError
from slots.messages.channel import Answer, Answers, Ask

ANSWER_SECONDS = 1.0
OPEN_QUESTIONS = 1024
"""The most questions under way; another one gets no answers, at once."""


class AskedWorker(Protocol):
    """The part of a worker that is needed here."""

    @property
    def index(self) -> int:
        """Its seat among the workers."""

    def send(self, message: Ask | Answers) -> None:
        """Send it a message."""


@dataclass(slots=True)
class _Question:
    asker: AskedWorker
    id: int
    waiting: set[int]
    timer: asyncio.TimerHandle
    answers: dict[int, Any] = field(default_factory=dict)


class Questions:
    """Passes questions on and gathers answers. bounded: none waits longer than :data:`ANSWER_SECONDS`."""

    def __init__(self, workers: Callable[[], Iterable[AskedWorker]]) -> None:
        self._workers = workers
        self._open: dict[int, _Question] = {}
        self._last = 0

    def ask(self, asker: AskedWorker, message: Ask) -> None:
        """Pass the question of ``asker`` on to every worker, itself included."""
        if len(self._open) >= OPEN_QUESTIONS:
            _sent(asker, Answers(id=message.id, answers=[]))
            return
        self._last += 1
        number = self._last
        workers = list(self._workers())
        timer = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._finish, number)
        self._open[number] = _Question(asker, message.id, {worker.index for worker in workers}, timer)
        passed_on = Ask(id=number, question=message.question)
        for worker in workers:
            if not _sent(worker, passed_on):
                self._open[number].waiting.discard(worker.index)
        self._check(number)

    def answer(self, worker: AskedWorker, message: Answer) -> None:
        """Take an answer; a late one is dropped."""
        question = self._open.get(message.id)
        if question is not None and worker.index in question.waiting:
            question.answers[worker.index] = message.answer
            question.waiting.discard(worker.index)
            self._check(message.id)

    def forget_worker(self, worker: AskedWorker) -> None:
        """The worker has ended: questions no longer wait for it."""
        for number, question in list(self._open.items()):
            question.waiting.discard(worker.index)
            if question.asker is worker:
                question.timer.cancel()
                del self._open[number]
            else:
                self._check(number)

    def _check(self, number: int) -> None:
        if not self._open[number].waiting:
            self._open[number].timer.cancel()
            self._finish(number)

    def _finish(self, number: int) -> None:
        question = self._open.pop(number)
        answers = [question.answers[index] for index in sorted(question.answers)]
        if not _sent(question.asker, Answers(id=question.id, answers=answers)):
            _sent(question.asker, Answers(id=question.id, answers=[]))


def _sent(worker: AskedWorker, message: Ask | Answers) -> bool:
    """Send something to a worker; false if it is too long, or the worker's channel has ended. That is no reason to end
    the worker that is attended to: it may be another one.
    """
    try:
        worker.send(message)
    except ChannelError:
        return False
    return True
