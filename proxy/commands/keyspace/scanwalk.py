"""The way of a SCAN through all groups: which server is asked next, and when every key has been seen.

A scan is a walk over the groups by ascending id, each scanned from its server's cursor 0 to its end. The whole
state is in the :class:`~proxy.commands.keyspace.scancursor.Cursor`, so any worker of any proxy can serve the next page.

**The promise**: a key that exists from the scan's first request to its last is returned at least once, as with one
Redis, however slots move. A key may be returned more than once, which SCAN allows. The argument:

1. A key is at one group at a time: at a move's source until it is dropped there, then at the target, where it was
   placed before. If its slot's keys were copied, it is at the source until the slot is ``finished``, then at the
   target, and the other one's is hidden; a page that may be from both sides of that moment is thrown away. A worker
   that goes on behind group *g* makes a step over *g*. Claim: at each step over *g* every key that is at a group of
   an id up to *g*, and has made no backward move in this pass, was returned. By induction over the steps of the pass:
   let *f* be the group stepped over before. A key that was at a group up to *f* at that step was returned before. Any
   other was behind *f* then, has moved forward only, and is at *g* or before it now. It was not at a group between
   *f* and *g*: the worker that makes a step knows all groups that have keys, see 2. So it was at *g* all the time
   between the two steps. In that time *g* was scanned from end to end, and its server has returned the key. Hence a
   pass misses only keys that move backward during it.
2. **drained** makes every worker put a table with the action ``prepared`` in force before the first key of the slot
   moves (:mod:`proxy.commands.keyspace.moves`), or else has its proxy fenced off at the action's servers before that.
   So a worker makes a step only after every master that it knows has answered it, later than the page of that step.
   Then it is not fenced, and no key has moved in an action that it does not know, even if it hears of other changes
   late. The source of a migrating slot is no slot's owner by the router's routes; the groups to walk over are taken
   from the table, sources and targets included. An action that was rolled back has moved nothing. It is forgotten once
   that is seen; until then it may cost a pass. A worker whose proxy has taken a new identity may have missed actions,
   and knows nothing of the epochs before (see 4).
3. A key moves at most once in an action of its slot. To be missed by *n* passes, it has to move backward in each of
   them, so its slot has had *n* backward actions since the first began. The cursor holds *S*, the epoch of the worker
   that began the scan, at that time. An action counts as over at the first table that shows it so. If that was at *S*
   or before, the action was over when the scan began, and has moved nothing during it. All others count. So if no slot
   has had *n* backward actions since *S*, *n* passes have returned every key. So a long rebalancing that moves slots
   backward one at a time costs a second pass, and not one for each slot.
4. Where the past since *S* is not known (the worker was started since, or fenced; *S* is ahead of its table; too many
   epochs have passed), or a group has another master, for which the cursor of the former one means nothing, the walk
   starts again at once. It is as if the client had begun a scan there: *S* becomes the worker's own epoch.
5. Epochs are kept modulo 2^15, and one that seems to be 2^14 or more back is not believed. If nothing has moved
   backward during a scan, its *S* becomes the current epoch before it gets as old as that. This changes nothing, for
   only later moves count. One case remains: a client waits between two pages while the table changes 2^15 times. Its
   walk may be taken for a younger one.

**It ends.** A pass ends as each server's scan does. After the first pass, a scan needs one more if slots moved backward
once during it, and another one if a slot did so twice. So it only goes on while one and the same slot moves backward in
every pass. Passes after the first are made with a large COUNT, which makes them short.
"""

from dataclasses import replace

from proxy.commands.keyspace.moves import MOST_COUNTED, Moves
from proxy.commands.keyspace.scancursor import EPOCHS, Cursor

FIRST = 0
"""The number of the first pass. Later numbers say how many passes count: 1 for one that started again, then 2, then
3."""
OLDEST = EPOCHS // 2
"""An epoch that seems to be at least so many epochs back is not believed."""
RENEWED = EPOCHS // 4
"""A cursor's epoch that is so many epochs back is brought forward where that changes nothing."""


class Walk:
    """The walks that pass through one worker.

    Args:
        moves: the worker's view of moves; its owner keeps it up to date.
    """

    def __init__(self, moves: Moves) -> None:
        self._moves = moves

    def begin(self, number: int = FIRST) -> Cursor | None:
        """The beginning of a scan, or of a new start; None if there is no group."""
        group = next(iter(self._moves.masters), None)
        return None if group is None else Cursor(number, self._moves.epoch % EPOCHS, group, 0)

    def resume(self, cursor: Cursor) -> Cursor | None:
        """The place to go on from, for a client's cursor; None if there is no group."""
        return cursor if self._since(cursor) is not None else self.begin(number=1)

    def advance(self, cursor: Cursor, position: int) -> Cursor | None:
        """The place to go on from, after the server of the cursor's group gave ``position``; None if the scan is over.

        Position 0 makes this a step. It is also the position of a group that no slot needs any more. For a step, the
        caller has had an answer of every master since.
        """
        since = self._since(cursor)
        if since is None:
            return self.begin(number=1)
        if position:
            return Cursor(cursor.number, self._stamp(cursor, since), cursor.group, position)
        return self._step(cursor, since)

    def _step(self, cursor: Cursor, since: int) -> Cursor | None:
        """Go on with the next group."""
        following = next((group for group in self._moves.masters if group > cursor.group), None)
        if following is not None:
            return Cursor(cursor.number, self._stamp(cursor, since), following, 0)
        passes = max(cursor.number, 1)
        missed = self._moves.backward_since(since)
        if missed < passes:
            return None
        anew = self.begin(number=1)
        if anew is None or missed > passes or passes == MOST_COUNTED:
            # More than one pass would be needed. After a new start, past backward moves no longer count.
            return anew
        return replace(anew, number=passes + 1, epoch=cursor.epoch)

    def _since(self, cursor: Cursor) -> int | None:
        """The whole epoch that the cursor's part of it means; None where it is not known what happened since."""
        moves = self._moves
        age = (moves.epoch - cursor.epoch) % EPOCHS
        since = moves.epoch - age
        if age >= OLDEST or since < moves.known_since or since < moves.masters_changed:
            return None
        return since

    def _stamp(self, cursor: Cursor, since: int) -> int:
        """The epoch for the next cursor."""
        if self._moves.epoch - since < RENEWED or self._moves.backward_since(since):
            return cursor.epoch
        return self._moves.epoch % EPOCHS
