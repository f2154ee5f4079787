"""Runs the handlers that are coroutines: as far as they can go now, and on from where they wait.

A handler waits at the front of its session's input. For a *condition* (:mod:`proxy.engine.outcomes`), it is looked at in the
very step that goes on with the handler, whenever the session is woken. So what the handler sends next goes out in the
same step that found the way of its keys free (**absent-first**, **drained**). For a future, the handler goes on once
that is done; for the reply of a server, in the turn in which it comes.

A handler has no task. So it costs no turn of the event loop, and what belongs to a task cannot become part of it.
"""

import asyncio

from libc.stdint cimport int32_t

from proxy.engine.clearing cimport clear_keys
from proxy.engine.connection cimport FOR_KEYS, FOR_OWED, SWITCHED
from proxy.engine.front cimport finish_front
from proxy.engine.router cimport ROUTE_LOCKED, ROUTE_OPEN, Router
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_WAIT
from slots.requests.parsing cimport argument_t

cdef enum:
    # The slot of requests without keys.
    NO_SLOT = -1
    # No slot: the way of a session's keys is not free.
    NO_WAY = -2

from proxy.engine.outcomes import NO_REPLY, Answered, Channel, Condition, NothingOwed, Reply, Settled, Unlocked
from proxy.engine.refusals import FAILED, LEFT, NO_SERVER, OUT_OF_MEMORY, crossslot

# In place of an outcome: the handler has to wait.
WAITS = object()
# What a handler waits for while it is running.
RUNNING = object()


cdef object begin(Session session, object coroutine, size_t size):
    """Run the handler of the request at the front, of ``size`` bytes, as far as it can now: its outcome, or WAITS."""
    session.front_size = size
    session.coroutine = coroutine
    return run(session)


cdef void go_on(Session session) noexcept:
    """Go on with the handler of the request at the front, and do what it decides."""
    cdef int before = session.loop.work_time.turn_to_if(session.meter is not None, session.client.user)
    session.loop.set_clock()
    try:
        outcome = run(session)
        if outcome is not WAITS:
            finish_front(session, outcome)
    except Exception as error:
        session.loop.event_loop.call_exception_handler({"message": "serving a client", "exception": error})
        session.close()
    session.loop.work_time.turn_to(before)


cdef object run(Session session):
    """Run the handler as far as it can now: its outcome, or WAITS.

    It may be the task of another request that brings the session here. What belongs to a task, such as a timeout, must
    not become part of that one, so there is none meanwhile.
    """
    cdef object event_loop = session.loop.event_loop
    cdef int protocol = session.protocol
    task = asyncio.current_task(event_loop)
    if task is not None:
        asyncio.tasks._leave_task(event_loop, task)
    try:
        while not step(session):
            pass
        return WAITS
    except StopIteration as ended:
        outcome = ended.value
    except Answered as answered:
        outcome = answered.reply
    except asyncio.CancelledError:
        # The client has left, or the worker ends. Nobody knows what was run.
        outcome = NO_REPLY
        session.close()
    except Exception as error:
        event_loop.call_exception_handler({"message": "a slow command failed", "exception": error})
        outcome = FAILED
    finally:
        if task is not None:
            asyncio.tasks._enter_task(event_loop, task)
        if session.protocol != protocol:
            session.before_next |= SWITCHED
    session.coroutine = session.awaited = None
    session.reasons &= ~FOR_KEYS
    session.cancelled = session.woken = False
    return outcome


cdef bint step(Session session) except? False:
    """One step of a handler: from what it waits for to the next thing that it waits for. Whether it has to wait.

    Raises:
        StopIteration: the handler has come to its end.
        Exception: what the handler raises.
    """
    given = error = None
    awaited, session.awaited = session.awaited, RUNNING
    session.leaving_watched = False
    if session.cancelled:
        session.cancelled = False
        error = asyncio.CancelledError()
    elif isinstance(awaited, Condition):
        if session.answered is None:
            session.woken = False
            try:
                given = meet(session, awaited)
            except Exception as failed:
                # Most often Answered. The handler may have something to tidy up, whatever it is.
                error = failed
        if session.answered is not None:
            error = Answered(session.answered)
        elif error is None and given is None:
            session.awaited = awaited
            # Whoever was asked may have woken the session at once.
            return not session.woken
    awaited = session.coroutine.send(given) if error is None else session.coroutine.throw(error)
    session.awaited = awaited
    session.answered = None
    session.reasons &= ~FOR_KEYS
    session.woken = False
    # absent-first: what ended an earlier wait says nothing about the keys of a later one.
    session.cleared = -1
    if isinstance(awaited, Condition):
        return False
    session.way = NO_WAY
    if awaited is None:
        # It lets others go first, as asyncio.sleep(0) does.
        session.loop.event_loop.call_soon(session._go_on)
    else:
        awaited._asyncio_future_blocking = False
        if isinstance(awaited, Reply) and awaited.session is None:
            awaited.session = session
        else:
            awaited.add_done_callback(session._go_on)
    if not session.closed:
        session.watch_leaving()
    return True


cdef object meet(Session session, object condition):
    """What a condition gives once it holds, or None if the session has to wait for it; then it will be woken.

    Raises:
        Answered: it can never hold.
    """
    cdef Router router = session.router
    cdef argument_t* keys
    cdef bytes key
    cdef int32_t slot
    cdef int database
    cdef int index
    cdef int count
    session.way = NO_WAY
    if session.closed or session.left_meanwhile():
        raise Answered(LEFT)
    if isinstance(condition, NothingOwed):
        if session.client.owed:
            # The send that leaves nothing owed resumes the session.
            session.before_next |= SWITCHED
            session.reasons |= FOR_OWED
            session.loop.list_client(&session.client.sender)
            return None
        return True
    if isinstance(condition, Unlocked):
        for slot in condition.slots():
            if router.routes[slot].state == ROUTE_LOCKED:
                session.reasons |= FOR_KEYS
                router.holding.hold(session, slot)
                return None
        session.stage += 1
        return True
    if isinstance(condition, Settled):
        refusal = condition.refusal()
        if refusal is not None:
            session.reasons |= FOR_KEYS
            router.holding.hold(session, NO_SLOT, refusal)
            return None
        session.stage += 1
        return True
    way = condition.way
    if isinstance(way, Channel):
        slot = router.channel_slot(way.name)
        if router.routes[slot].state == ROUTE_LOCKED:
            session.reasons |= FOR_KEYS
            router.holding.hold(session, slot)
            return None
        address = address_of(session, slot)
    elif not way:
        slot = NO_SLOT
        address = router.any_address()
        if address is None:
            raise Answered(NO_SERVER)
    else:
        count = len(way)
        keys = router.key_room(count)
        if keys == NULL:
            raise Answered(OUT_OF_MEMORY)
        for index in range(count):
            key = way[index]
            keys[index].data = key
            keys[index].size = len(key)
        database = session.database if condition.database is None else condition.database
        slot = router.slot_of(database, keys[0].data, keys[0].size)
        for index in range(1, count):
            other = router.slot_of(database, keys[index].data, keys[index].size)
            if other != slot:
                raise Answered(crossslot(way[0], slot, way[index], other))
        if database != session.database:
            if router.routes[slot].state == ROUTE_LOCKED:
                session.reasons |= FOR_KEYS
                router.holding.hold(session, slot)
                return None
        elif router.routes[slot].state != ROUTE_OPEN:
            session.reasons |= FOR_KEYS
            if clear_keys(session, keys, count, 1) == VERDICT_WAIT:
                return None
            session.reasons &= ~FOR_KEYS
        address = address_of(session, slot)
    if session.has_to_wait(session.shared(address), max(session.front_size, <size_t> condition.size)):
        return None
    session.stage += 1
    session.way = slot
    return slot, address


cdef object address_of(Session session, int32_t slot):
    """The address of the server at which a slot's commands run.

    Raises:
        Answered: there is none.
    """
    cdef Router router = session.router
    if router.routes[slot].server < 0:
        raise Answered(session.offline_error(slot))
    return router.addresses[router.routes[slot].server]
