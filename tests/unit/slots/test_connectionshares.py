"""A user's connections are shared out: there are never more than its limit, and who wants one gets a free one."""

import random
from collections import deque

from slots.connectionshares import ConnectionShares, beginning
from slots.messages.load import Connections

NAME = "tenant"


REMEMBERED = 10


class Door:
    """One that lets clients in, and is told shares by messages that take their time."""

    def __init__(self) -> None:
        self.limit = 0
        self.share = 0
        self.open = 0
        self.wanted: deque[int] = deque([0], REMEMBERED)
        self.said: deque[Connections] = deque()
        self.told: deque[int] = deque()

    def come(self) -> bool:
        if self.open >= self.share:
            self.wanted[-1] += 1
            return False
        self.open += 1
        self.wanted = deque((max(count - 1, 0) for count in self.wanted), REMEMBERED)
        return True

    def say(self) -> None:
        held = max(self.share, self.open)
        self.said.append(Connections(self.limit, self.open, max(self.wanted), self.share, held))
        self.wanted.append(0)

    def hear(self) -> None:
        self.share = self.told.popleft()


class Doors:
    def __init__(self, limit: int, number: int) -> None:
        self.limit = limit
        self.doors = {index: Door() for index in range(number)}
        self.shares: ConnectionShares[int] = ConnectionShares()
        for index in self.doors:
            self.shares.take(index, {NAME: Connections(limit, 0, 0, 0, 0)})

    def take(self, index: int) -> None:
        """Take what one has said first."""
        self.shares.take(index, {NAME: self.doors[index].said.popleft()})

    def tell(self, index: int) -> None:
        self.doors[index].told.append(self.shares.tell(index, {NAME: self.limit})[NAME])

    def second(self) -> None:
        for index, door in self.doors.items():
            door.say()
            self.take(index)
            self.tell(index)
            door.hear()

    def settle(self) -> list[int]:
        for _ in range(6):
            self.second()
        return [door.share for door in self.doors.values()]


def test_what_is_free_goes_to_all_and_who_has_some_open_keeps_them() -> None:
    doors = Doors(100, 4)
    assert doors.settle() == [25] * 4
    doors.doors[0].open = 20
    assert doors.settle() == [40, 20, 20, 20]
    doors.doors[0].open = 0
    assert doors.settle() == [25] * 4


def test_small_changes_change_nothing() -> None:
    doors = Doors(200, 2)
    doors.settle()
    doors.doors[0].open = 9
    assert doors.settle() == [100, 100]


def test_who_refuses_a_client_gets_what_is_free() -> None:
    doors = Doors(4, 4)
    assert doors.settle() == [1, 1, 1, 1]
    door = doors.doors[0]
    for _ in range(6):
        while door.come():
            pass
        doors.second()
    assert door.open == doors.limit
    assert not doors.doors[1].come()


def test_who_wants_few_is_not_starved_by_who_wants_many() -> None:
    doors = Doors(50, 2)
    doors.settle()
    greedy, modest = doors.doors.values()
    for _ in range(3):
        greedy.wanted[-1] = 1_000_000
        doors.second()
    assert greedy.share == 50
    assert not modest.come()
    for _ in range(3):
        greedy.wanted[-1], modest.wanted[-1] = 1_000_000, 1
        doors.second()
    assert modest.come()


def test_one_connection_goes_wherever_it_is_wanted() -> None:
    doors = Doors(1, 3)
    assert sum(doors.settle()) == 1
    for door in (*doors.doors.values(), *doors.doors.values()):
        for _ in range(4):
            doors.second()
            if not door.open:
                door.come()
        assert door.open == 1
        assert sum(other.open for other in doors.doors.values()) == 1
        door.open = 0


def test_a_lowered_limit_lets_nobody_in_until_enough_have_left() -> None:
    doors = Doors(100, 2)
    doors.settle()
    one, two = doors.doors.values()
    one.open = two.open = 50
    doors.limit = 10
    assert doors.settle() == [0, 0]
    one.open = 3
    two.open = 6
    doors.settle()
    assert one.share + two.share == 10
    assert one.share >= 3
    assert two.share >= 6


def test_one_that_is_gone_leaves_its_share_to_the_others() -> None:
    doors = Doors(10, 2)
    doors.settle()
    del doors.doors[1]
    assert doors.settle() == [5]
    doors.shares.forget(1)
    assert doors.settle() == [10]
    assert not doors.shares.knows(1)
    doors.shares.take(0, {})
    assert doors.shares.together(NAME) == (0, 0, 0)
    assert doors.shares.tell(0, {NAME: 10}) == {}


def test_there_are_never_more_than_the_limit_however_late_messages_come() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        doors = Doors(chance.choice([1, 2, 4, 10, 1000]), chance.randint(2, 5))
        for _ in range(400):
            index = chance.choice(list(doors.doors))
            door = doors.doors[index]
            match chance.randrange(7):
                case 0 | 1:
                    for _ in range(chance.choice([1, 1, 3, doors.limit])):
                        door.come()
                case 2:
                    door.open -= chance.randint(0, door.open)
                case 3:
                    door.say()
                case 4 if door.said:
                    doors.take(index)
                case 5:
                    doors.tell(index)
                case 6 if door.told:
                    door.hear()
            assert sum(door.open for door in doors.doors.values()) <= doors.limit


def test_the_beginning_is_a_tenth_and_one_at_least() -> None:
    assert [beginning(limit) for limit in (1, 4, 19, 20, 1000)] == [1, 1, 1, 2, 100]
