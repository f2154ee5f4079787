"""Questions that concern all workers of the proxy: a worker asks the others through the supervisor, and answers them.

**bounded**: a question is answered by this worker alone when the supervisor does not pass it on in time.
"""

import asyncio
import inspect
import itertools
from collections.abc import Callable
from typing import Any

from proxy.channel import Channel, MessageTooLong
from slots.messages.channel import Answer, Answers, Ask, SupervisorMessage
from slots.messages.questions import Question

ASK_SECONDS = 2.0
"""Limit of a question to all workers; the supervisor answers within a second with the answers it has."""


class Questions:
    """The questions of one worker.

    Args:
        channel: to the supervisor.
        answer: gives the worker's own answer to a question, or something to wait for that gives it.
    """

    def __init__(self, channel: Channel[SupervisorMessage], answer: Callable[[Question], Any]) -> None:
        self._channel = channel
        self._own_answer = answer
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[list[Any]]] = {}

    async def ask_all(self, question: Question) -> list[Any]:
        """Ask every worker, and give the answers (:class:`proxy.commands.services.AskAll`)."""
        number = next(self._numbers)
        answers: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._open[number] = answers
        try:
            self._channel.send(Ask(id=number, question=question))
            # Not wait_for, which needs a task: a handler has none until it first waits.
            await asyncio.wait([answers], timeout=ASK_SECONDS)
        except MessageTooLong:
            # The others cannot be asked.
            pass
        finally:
            self._open.pop(number, None)
        if answers.done():
            return answers.result()
        answer = await self._answer(question)
        return [] if answer is None else [answer]

    def answered(self, message: Answers) -> None:
        """The supervisor has gathered the answers to a question."""
        question = self._open.pop(message.id, None)
        if question is not None and not question.done():
            question.set_result([answer for answer in message.answers if answer is not None])

    async def give_answer(self, message: Ask) -> None:
        """Answer a question of some worker."""
        answer = await self._answer(message.question)
        try:
            self._channel.send(Answer(id=message.id, answer=answer))
        except MessageTooLong:
            self._channel.send(Answer(id=message.id, answer=None))

    async def _answer(self, question: Question) -> Any:
        answer = self._own_answer(question)
        return await answer if inspect.isawaitable(answer) else answer
