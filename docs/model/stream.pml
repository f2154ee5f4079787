/* Moving by the stream: copy and switch. A fake replica of the source writes one subset of slots to the target, batch by
 * batch, while clients are at the source; within one lock the slots change their owner.
 *
 * It shows applied-once, level and hidden, and that no acknowledged write is lost, whatever becomes of appliers, of their
 * connections, of topom, and of both servers. cleaning.pml goes on from there. README.md says what is left out and why
 * that is sound.
 *
 * Who decides about copies, topom, writes the first position of each. Who makes the copy goes on only from a position of
 * its own copy, and so writes nothing once another one has the copy, or the target is the owner.
 *
 * There are no values: what a server has is its place in a history of changes. The target has, in one step, the changes
 * of a batch and the position that stands for them; so a position is the data, as long as each batch begins where the
 * last one ended. That is what is asserted.
 */

#ifndef CHANGES
#define CHANGES 2 /* at the source, by clients or by itself */
#endif
#ifndef MARKERS
#define MARKERS 2 /* one for each lock that comes so far */
#endif
#ifndef COPIES
#define COPIES 1 /* that begin; each may be cancelled */
#endif
#ifndef SOURCE_CHANGES
#define SOURCE_CHANGES 0 /* it restarts with older data, or its replica takes its place; 1 at most */
#endif
#ifndef TARGET_CHANGES
#define TARGET_CHANGES 0 /* the same of the target */
#endif
#ifndef SWEEPS
#define SWEEPS 0 /* of the target, while it owns none of the slots; 1 at most */
#endif
byte changes_left = CHANGES;
byte markers_left = MARKERS;
byte copies_left = COPIES;
byte source_changes_left = SOURCE_CHANGES;
byte target_changes_left = TARGET_CHANGES;
byte sweeps_left = SWEEPS;

/* -- the source --------------------------------------------------------------------------------------------------- */

/* History 1 begins when the source comes back with older data, or its replica takes its place. Up to the fork it is
 * history 0. A place up to there is always named as one of history 0. */
bit history; /* the one of the master in force */
byte fork;
byte end_of[2];
bit former_lives; /* the former master still runs, at its address; else what is there is the master in force */
bit source_same = 1; /* at its address is the process that the action names */
#define history_of(history, place) ((history) && (place) > fork)
#define at_address (former_lives -> 0 : history)

/* What clients have had acknowledged, or have seen. */
bit seen_history;
byte seen;

/* -- the store ---------------------------------------------------------------------------------------------------- */

#define REST 0
#define COPYING 1
#define LOCKED 2
#define SWITCHED 3 /* the target is the owner */
#define CANCELLED 4 /* the source is the owner, the copy is being deleted */
byte stored;
bit voided; /* the ledger has another master for one of the two */

/* -- the target --------------------------------------------------------------------------------------------------- */

#define NONE 0  /* neither keys nor position */
#define BEGUN 1 /* a position, no keys */
#define HALF 2  /* of the snapshot */
#define COPY 3
#define GONE 4  /* the keys were deleted, the position not yet */
#define OWNED 5
byte copy;
#define NOBODY 2
byte token = NOBODY; /* whose the position is: the id of the copy in it */
bit p_history;
byte place;

byte saved_copy, saved_token = NOBODY, saved_place; /* what its file or its replica has */
bit saved_history, saved_mark;

bit target_same; /* it is the process in which the position was closed */
bit swept = 1;   /* it has no keys of these slots, by a sweep of this process */
bit own_loss;    /* it has come back with older data when nothing was left to look at */
bit sweep_mark;

/* -- appliers ----------------------------------------------------------------------------------------------------- */

/* Processes that make the copy, and their connections to the target. A process may pause at any step, also before its
 * first. One that loses a connection takes another one; in the first there is a batch, perhaps. */
#define FREE 0
#define OPEN 1  /* the process was told of the copy, and has to connect */
#define READY 2
#define SENT 3  /* a batch, after WATCH and GET */
#define LEFT 4  /* a batch in the socket of a connection that was lost */
byte connection[2];
bit whose[2]; /* by connection: the process */
bit watched[2]; /* the position was not written since WATCH */
byte from_copy[2], from_place[2], to_place[2];
bit from_history[2], to_history[2];
#ifdef SENT_AGAIN
byte from_again, to_again;
#endif
#define has_none(process) \
    ((connection[0] == FREE || whose[0] != (process)) && (connection[1] == FREE || whose[1] != (process)))

byte making = NOBODY; /* topom is about to write the first position of a copy by this process, and then to tell it */

inline forget_batch(me) {
    watched[me] = 0;
    from_copy[me] = 0;
    from_history[me] = 0;
    from_place[me] = 0;
    to_history[me] = 0;
    to_place[me] = 0
}

/* A batch after whose WATCH the position was written does nothing. */
inline write_position(its) {
    token = its;
#ifdef NO_POSITION_CHECK
    skip
#else
    forget_batch(0);
    forget_batch(1)
#endif
}

/* To take a position away that is not there changes nothing, and so no batch is kept from running. */
#ifdef ABSENCE_IS_A_POSITION
#define position_is_there (copy != NONE)
#else
#define position_is_there true
#endif
inline shut_out() {
    if
    :: position_is_there -> write_position(NOBODY)
    :: else
    fi
}

/* applied-once, hidden: each batch finds what it begins from, and no owner's data. */
inline apply(me) {
    assert(copy == from_copy[me] &&
           (copy <= BEGUN || (p_history == from_history[me] && place == from_place[me])));
    copy = (copy <= BEGUN -> HALF : COPY);
    p_history = to_history[me];
    place = to_place[me];
#ifdef ABSENCE_IS_A_POSITION
    write_position(whose[me])
#else
    write_position(token)
#endif
}

/* A stream goes on, at a former master as long as that runs, and at the next one where PSYNC grants it: up to the fork. */
#define goes_on_in_0(in, at) ((!history || former_lives) && !(in) && (at) < end_of[0])
#define goes_on_in_1(in, at) (history && ((in) || (at) <= fork) && (at) < end_of[1])
#define has_more(what, in, at) ((what) != COPY || goes_on_in_0(in, at) || goes_on_in_1(in, at))

/* A batch that begins where the position is, and ends at any place that the stream has come to. */
inline make_batch(me) {
    from_copy[me] = copy;
    from_history[me] = p_history;
    from_place[me] = place;
    if
    :: from_copy[me] <= BEGUN -> /* a snapshot, as of now */
        to_place[me] = end_of[history];
        to_history[me] = history_of(history, end_of[history])
    :: from_copy[me] == HALF ->
#ifdef HALVES_OF_TWO_SNAPSHOTS
        from_place[me] = end_of[history];
        from_history[me] = history_of(history, end_of[history]);
#endif
        to_place[me] = from_place[me];
        to_history[me] = from_history[me]
    :: from_copy[me] == COPY ->
        if
        :: goes_on_in_0(from_history[me], from_place[me]) ->
            to_history[me] = 0;
            to_place[me] = from_place[me] + 1;
            if
            :: to_place[me] < end_of[0] -> to_place[me] = end_of[0]
            :: true
            fi
        :: goes_on_in_1(from_history[me], from_place[me]) ->
            to_place[me] = from_place[me] + 1;
            if
            :: to_place[me] < end_of[1] -> to_place[me] = end_of[1]
            :: true
            fi;
            to_history[me] = history_of(1, to_place[me])
        fi
    fi
}

#define is_copy(what) ((what) >= BEGUN && (what) <= COPY)
#define copies_now (stored == COPYING || stored == LOCKED)

/* What topom knows; the one after it does not. */
#if SWEEPS
bit stopped; /* the mark of a sweep that began before the copy was taken away */
#define sweeps_are_stopped stopped
#else
#define sweeps_are_stopped true
#endif

inline leave(me) {
    connection[me] = FREE;
    whose[me] = 0;
    forget_batch(me)
}

/* Who decides about copies writes the first position. */
inline begin_position(process) {
#ifndef ABSENCE_IS_A_POSITION
    if
    :: copy == NONE -> copy = BEGUN
    :: else
    fi;
#endif
    if
    :: position_is_there -> write_position(process)
    :: else
    fi
}

inline tell(free, process) {
    connection[free] = OPEN;
    whose[free] = process
}

active [2] proctype Applier() {
    byte me = _pid;
end:
    do
    :: atomic { /* the copy may have become another process's since, or have ended */
            connection[me] == OPEN ->
            connection[me] = READY;
#ifdef FIRST_POSITION_BY_WHO_COPIES
            begin_position(whose[me])
#endif
        }
    :: atomic { /* WATCH, GET; then MULTI, the changes, SET, EXEC: it goes on only from a position of its own copy */
            connection[me] == READY && token == whose[me] && is_copy(copy) && has_more(copy, p_history, place) ->
            connection[me] = SENT;
            make_batch(me);
            watched[me] = 1
        }
    :: atomic { connection[me] == READY && token == whose[me] && copy == OWNED -> assert(copy != OWNED) } /* hidden */
#ifdef ABSENCE_IS_A_POSITION
    :: atomic { connection[me] == READY && copy == NONE -> connection[me] = SENT; make_batch(me); watched[me] = 1 }
#endif
    :: atomic { /* it is run; or not, as the position was written by another one */
            connection[me] == SENT ->
            connection[me] = READY;
            if
            :: watched[me] -> apply(me)
            :: else
            fi;
            forget_batch(me)
        }
#ifdef SENT_AGAIN
    :: atomic { /* the reply is lost */
            connection[me] == SENT && watched[me] && from_copy[me] == COPY ->
            to_again = to_place[me];
            from_again = from_place[me];
            apply(me);
            from_copy[me] = COPY;
            from_place[me] = from_again;
            to_place[me] = to_again;
            watched[me] = 1
        }
#endif
    :: atomic { connection[me] == SENT -> connection[me] = LEFT }
    :: atomic { connection[me] == SENT && connection[1 - me] == FREE -> connection[me] = LEFT; tell(1 - me, whose[me]) }
    :: atomic { connection[me] == LEFT && watched[me] -> apply(me); leave(me) }
    :: atomic { connection[me] != FREE -> leave(me) }
    od
}

/* -- proxies ------------------------------------------------------------------------------------------------------ */

bit holds[2]; /* it has acknowledged the lock: it sends nothing to the source, and has had all replies */
#define drained (holds[0] && holds[1])

active [2] proctype Proxy() {
    byte me = _pid - 2;
end:
    do
    :: atomic { stored == LOCKED && !holds[me] -> holds[me] = 1 }
    :: atomic {
            !holds[me] && changes_left > 0 ->
            assert(stored != SWITCHED); /* one-owner */
            changes_left--;
            end_of[history]++;
            seen_history = history;
            seen = end_of[history]
        }
    :: atomic { !holds[me] && history && !seen_history -> seen_history = 1; seen = end_of[1] } /* a read */
    od
}

/* -- servers ------------------------------------------------------------------------------------------------------ */

active proctype Source() {
end:
    do
    :: atomic { /* a key expires, or is cleaned up after the switch; no client needs to have seen it */
            changes_left > 0 -> changes_left--; end_of[history]++
        }
    :: atomic {
            source_changes_left > 0 ->
            source_changes_left--;
            fork = end_of[0];
            do
            :: fork > 0 -> fork--
            :: break
            od;
            history = 1;
            end_of[1] = fork;
            if
            :: source_same = 0 /* it has restarted, and nobody has heard of it */
            :: former_lives = 1; /* a failover: it is stored before anybody uses the other master */
#ifndef FAILOVER_DOES_NOT_VOID
                voided = 1
#endif
            fi
        }
    od
}

/* run-id: who copies was told which process the target is, and goes on at no other. */
inline lose_connection(me) {
#ifdef ANY_TARGET_PROCESS
    if
    :: connection[me] == LEFT || connection[me] == FREE -> leave(me)
    :: else -> connection[me] = OPEN; forget_batch(me)
    fi
#else
    leave(me)
#endif
}

/* Who sweeps the target may pause between any two steps, be it topom or a former one. */
#define IDLE 0
#define ASKED 1  /* it is about to set its mark */
#define MARKED 2 /* and to look at the store */
#define SWEEPS_NOW 3
byte sweeper;
bit sweeper_same; /* the target is the process that it has set its mark at */

#ifdef SWEEP_WITHOUT_MARK
#define may_delete true
#else
#ifdef MARK_WITHOUT_RUN_ID
#define may_delete sweep_mark
#else
#define may_delete (sweep_mark && sweeper_same)
#endif
#endif
#define no_copy_now (stored == REST || stored == CANCELLED)

active proctype Sweeper() {
end:
    do
    :: atomic { sweeper == IDLE && sweeps_left > 0 && no_copy_now -> sweeps_left--; sweeper = ASKED }
    :: atomic { sweeper == ASKED -> sweeper = MARKED; sweep_mark = 1; sweeper_same = 1 }
    :: atomic {
            sweeper == MARKED ->
            if
            :: no_copy_now -> sweeper = SWEEPS_NOW
            :: else -> sweeper = IDLE
            fi
        }
    :: atomic { /* owned: the step that deletes looks at the mark, and for which process it was set */
            sweeper == SWEEPS_NOW && may_delete ->
            sweeper = IDLE;
            assert(stored == CANCELLED || stored == REST || !(copy == HALF || copy == COPY || copy == OWNED))
        }
    :: atomic { sweeper != IDLE -> sweeper = IDLE }
    od
}

active proctype Target() {
end:
    do
    :: atomic {
            target_changes_left > 0 ->
            saved_copy = copy;
            saved_token = token;
            saved_history = p_history;
            saved_place = place;
            saved_mark = sweep_mark
        }
    :: atomic { /* it restarts, or its replica takes its place: with what is saved */
            target_changes_left > 0 ->
            target_changes_left--;
            if
            :: stored == SWITCHED
            :: else -> copy = saved_copy; p_history = saved_history; place = saved_place
            fi;
            token = saved_token;
            sweep_mark = saved_mark;
            if
            :: target_same = 0
            :: stored != SWITCHED ->
#ifndef FAILOVER_DOES_NOT_VOID
                voided = 1
#endif
            fi;
            own_loss = 1;
            swept = 0;
            sweeper_same = 0;
            lose_connection(0);
            lose_connection(1);
#ifndef ANY_TARGET_PROCESS
            making = NOBODY;
#endif
            if
            :: target_changes_left == 0 ->
                saved_copy = NONE; saved_token = NOBODY; saved_history = 0; saved_place = 0; saved_mark = 0
            :: else
            fi
        }
    od
}

/* -- topom -------------------------------------------------------------------------------------------------------- */

/* What this topom knows; the one after it does not. */
#define NOTHING 0
#define CLOSED 1
#define COMPARED 2
byte knows;
bit marked;
bit marker_history;
byte marker;
bit position_changed; /* of a copy that is to be deleted */
bit late_switch;      /* a former topom is about to store it */
#ifdef NO_TERMS
byte late_making = NOBODY; /* and to make it ready; it is not turned away from the target (migrator/terms.py) */
#endif

inline forget() {
    knows = NOTHING;
#ifndef ANY_MARKER
    marked = 0;
    marker_history = 0;
    marker = 0;
#endif
    position_changed = 0;
    target_same = 0;
    own_loss = 0;
    making = NOBODY
}

/* A proxy that hears of it later only waits longer. */
inline unlock(state) {
    forget();
    stored = state;
    holds[0] = 0;
    holds[1] = 0
}

/* level */
#ifdef SWITCH_WITHOUT_MARKER
#define is_level (copy == COPY)
#else
#ifdef OFFSETS_COMPARED
#define is_level (copy == COPY && place >= end_of[history])
#else
#define is_level (copy == COPY && marked && place >= marker && (p_history == marker_history || marker <= fork))
#endif
#endif

/* What clients have seen: by a failure of its own the source may have lost what is behind the fork. */
#define needed (history && !seen_history && seen > fork -> fork : seen)
#define none_is_lost \
    (copy == COPY && place >= needed && (!seen_history || p_history || (place <= fork && place >= seen)))

inline switch() {
    assert(none_is_lost || own_loss);
#ifdef WITNESS_SWITCH
    assert(false);
#endif
    stored = SWITCHED;
    copy = OWNED;
    p_history = 0;
    place = 0;
    seen_history = 0;
    seen = 0;
    forget()
}

#define one_is_free (connection[0] == FREE || connection[1] == FREE)
inline make_ready(process) {
#ifndef FIRST_POSITION_BY_WHO_COPIES
    begin_position(process);
#endif
    if
    :: connection[0] == FREE -> tell(0, process)
    :: else -> tell(1, process)
    fi
}

#ifdef STOPPED_BEFORE_COPY
#define may_begin stopped
#define may_stop true
#else
#define may_begin true
#define may_stop copies_now
#endif

active proctype Topom() {
end:
    do
#if SWEEPS
    :: atomic { may_stop && !stopped -> sweep_mark = 0; stopped = 1 }
    :: atomic { stopped -> stopped = 0 } /* another topom */
#endif
    :: atomic {
            stored == REST && copies_left > 0 && swept && may_begin ->
            assert(copy == NONE || copy == BEGUN); /* owned */
            copies_left--;
#if SWEEPS && !defined(STOPPED_BEFORE_COPY)
            stopped = 0;
#endif
            voided = 0;
            source_same = 1;
            if
            :: former_lives -> former_lives = 0
            :: else
            fi;
            forget();
            stored = COPYING
        }
    :: atomic {
            stored == COPYING && making == NOBODY && sweeps_are_stopped && (has_none(0) || has_none(1)) ->
            making = (has_none(0) -> 0 : 1)
        }
    :: atomic { making != NOBODY && one_is_free -> make_ready(making); making = NOBODY }
    :: atomic { stored == COPYING && !voided -> forget(); stored = LOCKED }
#ifdef MARKED_BEFORE_DRAINED
    :: atomic { stored == LOCKED && !marked && markers_left > 0 ->
#else
    :: atomic { /* drained: whatever clients were told is before the marker */
            stored == LOCKED && drained && !marked && markers_left > 0 ->
#endif
            markers_left--;
            marked = 1;
#ifndef OFFSETS_COMPARED
            marker_history = at_address;
            end_of[marker_history]++;
            marker = end_of[marker_history]
#endif
        }
    :: atomic {
            stored == LOCKED && marked && knows == NOTHING ->
            if
            :: is_level ->
#ifndef NOT_SHUT_OUT
                write_position(NOBODY);
#endif
                target_same = 1;
                knows = CLOSED
            :: else -> unlock(COPYING)
            fi
        }
    :: atomic {
            knows == CLOSED ->
            if
#ifdef TARGET_NOT_COMPARED
            :: source_same ->
#else
#ifdef SOURCE_NOT_COMPARED
            :: target_same ->
#else
            :: source_same && target_same ->
#endif
#endif
                knows = COMPARED; own_loss = 0
            :: else -> unlock(COPYING)
            fi
        }
    :: atomic { knows == COMPARED && !voided -> switch() }
    :: atomic { stored == LOCKED -> unlock(COPYING) } /* the lock has lasted too long */
    :: atomic { copies_now -> unlock(CANCELLED) }
    :: atomic { /* another topom; the former one may still hold a step */
            true ->
#ifdef NO_COMPARE_AND_SWAP
            late_switch = (knows == COMPARED);
#endif
#ifdef NO_TERMS
            late_making = making;
#endif
            forget()
        }
#ifdef NO_COMPARE_AND_SWAP
    :: atomic { late_switch && stored != SWITCHED -> late_switch = 0; switch() }
#endif
#ifdef NO_TERMS
    :: atomic { late_making != NOBODY && one_is_free -> make_ready(late_making); late_making = NOBODY }
#endif
    :: atomic { is_copy(copy) && token != NOBODY -> write_position(NOBODY) } /* a step of a former topom */

    :: atomic {
            stored == REST && !swept ->
            shut_out();
            copy = NONE;
            p_history = 0;
            place = 0;
            swept = 1
        }

    /* A cancel. */
#ifndef CANCEL_DELETES_FIRST
    :: atomic { stored == CANCELLED && !position_changed -> shut_out(); position_changed = 1 }
#endif
    :: atomic {
#ifdef CANCEL_DELETES_FIRST
            stored == CANCELLED && copy != NONE && copy != GONE ->
#else
            stored == CANCELLED && copy != NONE && copy != GONE && position_changed ->
#endif
            copy = GONE;
            p_history = 0;
            place = 0
        }
    :: atomic { stored == CANCELLED && copy == GONE -> write_position(NOBODY); copy = NONE }
    :: atomic { stored == CANCELLED && copy == NONE && position_changed -> stored = REST; swept = 1; forget() }
    od
}
