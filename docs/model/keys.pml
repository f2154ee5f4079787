/* Moving keys: what happens to two keys while their slot goes from a source to a target.
 *
 * It upholds absent-first, one-way and complete, and with them that every command sees what the last acknowledged
 * one left. It takes from barrier.pml that proxies change from one state to the next as the barrier says: one-owner
 * and drained are assumed here, and shown there. README.md says what is left out and why that is sound.
 *
 * A copy of a key is FRESH when it is what the last acknowledged command left, else STALE; a write makes all other
 * copies STALE. So there is no counter of versions, and any number of writes is covered.
 */

#ifndef ROUNDS
#define ROUNDS 1 /* journeys from the source to the target; between two of them the slot is put back */
#endif

#ifndef KEYS
#define KEYS 2 /* with BIG, the last one is big */
#endif

/* Faults come as often as they like, at any time; with -DFAULTS=n, at most n of them in all. */
#ifdef FAULTS
byte faults_left = FAULTS;
#define FAULT (faults_left > 0)
#define strike faults_left--
#else
#define FAULT true
#define strike skip
#endif

/* Places that can hold a copy of a key. */
#define SOURCE 0
#define TARGET 1
#define SENT 2 /* the RESTORE of the MIGRATE under way */
#define LATE 3 /* a RESTORE of a MIGRATE that the source has given up */
#define PIECES 4 /* under the temporary name at the target, and in the RENAME of it that the migrator has sent */
#define LATE_RENAME 5 /* in a RENAME that a migrator sent which is gone */
#define PLACES 6

/* Copies. */
#define NONE 0
#define STALE 1
#define FRESH 2

byte copy[12]; /* by place and key */
#define at(place, key) copy[2 * (place) + (key)]

/* What the last acknowledged command, or expiry, has left. */
#define ABSENT 0
#define THERE 1
#define EXPIRED 2 /* at the source; the same value elsewhere is no harm until somebody has looked */
byte truth[2];

/* The slot's state as stored by topom, and as each proxy applies it. */
#define AT_SOURCE 0
#define PREPARED 1
#define MIGRATING 2
#define FINISHED 3
#define AT_TARGET 4
byte stored;
byte applied[2];
byte round;

/* Movers: the workers of two proxies, the migrator, and a request of one of them that its connection has lost. */
#define MIGRATOR 2
#define STRAY 3
#define NOBODY 4
#define GONE 5

bit absent[4]; /* by proxy and key: known to be absent from the source */
#define knows_absent(proxy, key) absent[2 * (proxy) + (key)]

bit reads_at_source[2]; /* by proxy: it has been told that the last key is still there, and is big or not taken */
bit deletes[2]; /* by proxy: the target has said that it has no such key, and the permit of before is the stored one */
bit moving[2]; /* by proxy: its worker has a move under way */

/* The hash __slotferry:moving at the source. Random values are never the same twice, so that it is enough to know of
 * each mover whether what it has is still what is stored. */
#define MISSING 0
#define PERMIT 1
#define UNSETTLED 2
#define FOREIGN 3 /* a permit with the run_id of a process that has ended */
byte hash;
bit believes[4]; /* by mover: the permit it has is the stored one */
#define NOTHING 0
#define SAME 1
#define SAW_MISSING 2
byte seen[3]; /* by mover: whether what it read before it settled is still there */

/* The move script, while it waits for the target. */
byte runs_for = NOBODY; /* the source does nothing else */
#define IDLE 0
#define UNDER_WAY 1 /* sent, not executed */
#define DONE 2 /* executed; the reply has not been read */
#define BUSYKEY 3 /* refused; the reply has not been read */
#define CUT 4 /* its connection was closed by the target */
byte restore[2];
bit replaces; /* REPLACE is given */
bit retried; /* MIGRATE has sent everything again over a new connection, as it does once */
bit late_replaces[2];
bit late_unseen[2]; /* the target's kernel has not completed its connection, so CLIENT LIST does not have it */
bit refused; /* by the target, for want of memory: the key stays where it is */
byte told[3]; /* by mover: how its script ended */
#define WAIT 0
#define MOVED 1
#define UNSURE 2

bit claimed; /* the big key, in __slotferry:claims: it goes in pieces and nobody else moves it */
bit unlinks; /* the migrator's UNLINK of the big key is sent */
bit late_unlinks; /* the same of a migrator that is gone */
bit renamed; /* the RENAME was answered */
byte stray_key;
bit strays;

#ifdef OLDER_DATA
bit had_moved[2];
#endif

hidden byte place;
hidden byte each;

#define free (runs_for == NOBODY)
#define BIG_KEY (KEYS - 1)
#ifdef BIG
#define is_big(key) ((key) == BIG_KEY) /* by some measurements; by others it is small */
#else
#define is_big(key) false
#endif
#ifdef FULL /* the target may be at its maxmemory, and then takes no key */
#define is_read_at_source(key) ((key) == BIG_KEY)
#else
#define is_read_at_source(key) is_big(key)
#endif
#define is_claimed(key) (claimed && (key) == BIG_KEY)
#define is_absent(key) (at(SOURCE, key) == NONE && !is_claimed(key))

/* -- commands ----------------------------------------------------------------------------------------------------- */

inline outdate(key) {
    place = 0;
    do
    :: place < PLACES ->
        if
        :: at(place, key) == FRESH -> at(place, key) = STALE
        :: else
        fi;
        place++
    :: else -> break
    od;
    place = 0
}

/* no-loss: what a command finds is what the last acknowledged one has left. */
inline look(server, key) {
    assert(truth[key] != THERE || at(server, key) == FRESH);
    assert(truth[key] != ABSENT || at(server, key) == NONE);
    assert(truth[key] != EXPIRED || at(server, key) != STALE);
    if
    :: truth[key] == EXPIRED && at(server, key) == NONE -> outdate(key); truth[key] = ABSENT
    :: truth[key] == EXPIRED && at(server, key) == FRESH -> truth[key] = THERE
    :: else
    fi
}

inline perform(server, key) {
    look(server, key);
    if
    :: true /* a read */
    :: outdate(key); at(server, key) = FRESH; truth[key] = THERE
    :: outdate(key); at(server, key) = NONE; truth[key] = ABSENT
    fi
}

inline run_at_target(key) {
#ifndef OLDER_DATA /* which breaks one-way by itself; to see what follows */
    /* absent-first */
    assert(at(SOURCE, key) == NONE);
#endif
    perform(TARGET, key)
}

inline any_key(key) {
    if
    :: key = 0
    :: KEYS == 2 -> key = 1
    fi
}

/* What the sessions of a proxy send. Sending and execution are one step: README.md, "One step". */
active [2] proctype Clients() {
    byte key;
    byte me = _pid;
end:
    do
    :: atomic {
            applied[me] == AT_SOURCE && free ->
            any_key(key);
            perform(SOURCE, key);
            key = 0
        }
#ifdef NO_ABSENT_FIRST
    :: atomic { applied[me] == MIGRATING -> any_key(key); run_at_target(key); key = 0 }
#endif
#ifdef NO_ONE_WAY
    :: atomic { /* whoever finds a key nowhere makes it at the source */
            applied[me] == MIGRATING && free && !is_big(0) && at(SOURCE, 0) == NONE && at(TARGET, 0) == NONE &&
            !knows_absent(me, 0) && truth[0] == ABSENT -> at(SOURCE, 0) = FRESH; truth[0] = THERE
        }
#endif
    :: atomic { applied[me] == MIGRATING && knows_absent(me, 0) -> run_at_target(0) }
    :: atomic { applied[me] == MIGRATING && knows_absent(me, 1) -> run_at_target(1) }
    :: atomic { applied[me] >= FINISHED -> any_key(key); run_at_target(key); key = 0 }
    :: atomic { /* MULTI, EXISTS, the read, EXEC: nothing comes between */
            reads_at_source[me] && free ->
            reads_at_source[me] = 0;
#ifdef READ_WITHOUT_EXISTS
            look(SOURCE, BIG_KEY)
#else
            if
            :: at(SOURCE, BIG_KEY) != NONE -> look(SOURCE, BIG_KEY);
#ifdef WITNESS_READ
                assert(at(TARGET, BIG_KEY) == NONE) /* it is on both servers */
#endif
            :: else
            fi
#endif
        }

    /* What the proxy hears from topom. */
#ifdef NO_DRAIN
    :: atomic { applied[me] == AT_SOURCE && stored >= MIGRATING && stored < AT_TARGET -> applied[me] = MIGRATING }
#endif
    :: atomic { applied[me] == AT_SOURCE && stored == PREPARED -> applied[me] = PREPARED }
    :: atomic {
            applied[me] == PREPARED && stored >= MIGRATING ->
            applied[me] = MIGRATING;
#ifndef KEEP_ABSENT
            knows_absent(me, 0) = 0;
            knows_absent(me, 1) = 0
#endif
        }
    :: atomic { applied[me] == MIGRATING && stored == FINISHED -> applied[me] = FINISHED } /* also with moves under way */
    od
}

/* -- the source: the move script ---------------------------------------------------------------------------------- */

/* Whatever is sent with a permit that is not the stored one any more, does nothing. */
inline deletes_fail() {
#ifdef DELETE_BY_LATER_PERMIT
    skip
#else
    deletes[0] = 0;
    deletes[1] = 0
#endif
}

inline hash_becomes(what) {
    hash = what;
    each = 0;
    do
    :: each < 3 ->
        believes[each] = 0;
        if
        :: seen[each] == SAME -> seen[each] = NOTHING
        :: else
        fi;
        each++
    :: else -> break
    od;
    believes[STRAY] = 0;
    deletes_fail();
    each = 0
}

#ifdef NO_PERMIT
#define permitted(mover) true
#else
#define permitted(mover) (hash == PERMIT && believes[mover])
#endif

inline send(key) {
    restore[key] = UNDER_WAY;
    at(SENT, key) = at(SOURCE, key)
}

inline begin_move(mover, key) {
    runs_for = mover;
    send(key)
}

inline end_script(how) {
    if
    :: runs_for < STRAY -> told[runs_for] = how
    :: else
    fi;
    runs_for = NOBODY;
    refused = 0;
    replaces = 0;
    retried = 0
}

/* What was sent and not executed may come at any later time. */
inline give_up(key) {
    if
    :: restore[key] == UNDER_WAY ->
        at(LATE, key) = at(SENT, key);
        late_replaces[key] = replaces;
#ifdef HALF_OPEN
        if
        :: late_unseen[key] = 1
        :: late_unseen[key] = 0
        fi
#endif
    :: else
    fi;
    restore[key] = IDLE;
    at(SENT, key) = NONE
}

active proctype Source() {
end:
    do
    :: atomic {
            restore[0] == DONE ->
            restore[0] = IDLE;
            at(SENT, 0) = NONE;
            at(SOURCE, 0) = NONE;
#ifdef OLDER_DATA
            had_moved[0] = 1
#endif
        }
    :: atomic { restore[1] == DONE -> restore[1] = IDLE; at(SENT, 1) = NONE; at(SOURCE, 1) = NONE }
    :: atomic { /* refused without REPLACE: again, with it, for what is left */
            (restore[0] == BUSYKEY || restore[1] == BUSYKEY) && (restore[0] == BUSYKEY || restore[0] == IDLE) &&
            (restore[1] == BUSYKEY || restore[1] == IDLE) ->
            replaces = 1;
            retried = 0;
            if
            :: restore[0] == BUSYKEY -> send(0)
            :: else
            fi;
            if
            :: restore[1] == BUSYKEY -> send(1)
            :: else
            fi
        }
    :: atomic { /* the connection was closed: once more over a new one */
            !retried && (restore[0] == CUT || restore[1] == CUT) ->
            retried = 1;
            if
            :: restore[0] == CUT -> send(0)
            :: else
            fi;
            if
            :: restore[1] == CUT -> send(1)
            :: else
            fi
        }
#ifdef ONE_SIDED_RESET
    :: atomic { /* only the source takes the connection for closed, so what it has sent over it is still on its way */
            FAULT && !retried && restore[0] == UNDER_WAY && restore[1] == IDLE ->
            strike;
            give_up(0);
            retried = 1;
            send(0)
        }
#endif
    :: atomic { !free && restore[0] == IDLE && restore[1] == IDLE && !refused -> end_script(MOVED) }
    :: atomic { /* it has taken no key; had it said that it has one of that name (BUSYKEY), that is there still */
            !free && restore[0] == IDLE && restore[1] == IDLE && refused ->
#ifndef COPY_FORGOTTEN
            if
            :: replaces -> hash_becomes(UNSETTLED)
            :: else
            fi;
#endif
            end_script(UNSURE)
        }
#ifdef CONNECTING_IS_NOTHING
    :: atomic { /* ... which cannot be opened. What the target has closed brings nothing any more. */
            FAULT && !retried && (restore[0] == CUT || restore[1] == CUT) &&
            restore[0] != UNDER_WAY && restore[1] != UNDER_WAY ->
            strike;
            give_up(0);
            give_up(1);
            end_script(UNSURE)
        }
#endif
    :: atomic { /* IOERR: the outcome is unknown, and in the same step nobody is permitted to move any more */
            !free && (restore[0] == CUT || restore[1] == CUT ||
                (FAULT && (restore[0] != IDLE || restore[1] != IDLE))) ->
            if
            :: restore[0] == CUT || restore[1] == CUT
            :: else -> strike
            fi;
            give_up(0);
            give_up(1);
#ifndef NO_PERMIT
#ifndef PERMIT_KEPT
            hash_becomes(UNSETTLED);
#endif
#endif
            end_script(UNSURE)
        }
    :: atomic { /* a request whose connection was lost is read late */
            strays && free ->
            strays = 0;
            if
            :: permitted(STRAY) && at(SOURCE, stray_key) != NONE && !is_claimed(stray_key) ->
                begin_move(GONE, stray_key)
            :: else
            fi;
            believes[STRAY] = 0;
            stray_key = 0
        }
    :: atomic { unlinks && free -> unlinks = 0; at(SOURCE, BIG_KEY) = NONE; claimed = 0 }
    :: atomic { late_unlinks && free -> late_unlinks = 0; at(SOURCE, BIG_KEY) = NONE; claimed = 0 }
    :: atomic { /* it is restarted, with all that it had; what it has sent may still arrive */
            FAULT && stored < AT_TARGET ->
            strike;
            give_up(0);
            give_up(1);
            if
            :: !free -> end_script(UNSURE)
            :: else
            fi;
            strays = 0;
            stray_key = 0;
            believes[STRAY] = 0;
#ifndef NO_RUN_ID
            if
            :: hash == PERMIT ->
                hash = FOREIGN;
                believes[0] = 0;
                believes[1] = 0;
                believes[MIGRATOR] = 0;
                deletes_fail()
            :: else
            fi
#endif
        }
    :: atomic { /* the hash is evicted, or flushed */
            FAULT && hash != MISSING && free -> strike; hash_becomes(MISSING)
        }
    :: atomic { /* a key expires, or is evicted, but never within a script */
            FAULT && free && at(SOURCE, KEYS - 1) != NONE && truth[KEYS - 1] == THERE ->
            strike;
            at(SOURCE, KEYS - 1) = NONE;
            truth[KEYS - 1] = EXPIRED
        }
#ifdef CLAIM_LOST
    :: atomic { claimed && free -> claimed = 0 } /* evicted, or flushed */
#endif
#ifdef OLDER_DATA
    :: atomic { /* it is restarted, or replaced by a replica, with older data: a key that had moved is back */
            free && hash == PERMIT && stored == MIGRATING && had_moved[0] && at(SOURCE, 0) == NONE ->
            at(SOURCE, 0) = STALE;
            hash = FOREIGN;
            believes[0] = 0;
            believes[1] = 0;
            believes[MIGRATOR] = 0;
            believes[STRAY] = 0;
            deletes_fail()
        }
#endif
    od
}

/* -- the target --------------------------------------------------------------------------------------------------- */

inline execute(key) {
    if
    :: at(TARGET, key) != NONE && !replaces -> restore[key] = BUSYKEY
    :: else -> at(TARGET, key) = at(SENT, key); restore[key] = DONE
    fi
}

#ifdef REPEATED_AND_REFUSED
#define may_refuse true
#else
#define may_refuse !retried
#endif

inline refuse(key) {
    restore[key] = IDLE;
    at(SENT, key) = NONE;
    refused = 1
}

inline execute_late(key) {
    if
    :: at(TARGET, key) != NONE && !late_replaces[key]
    :: else -> at(TARGET, key) = at(LATE, key);
#ifdef WITNESS_LATE
        assert(false)
#endif
    fi;
    forget_late(key)
}

inline forget_late(key) {
    at(LATE, key) = NONE;
    late_replaces[key] = 0;
    late_unseen[key] = 0
}

/* Every connection that may be a MIGRATE's is ended. */
inline end_connections() {
    if
    :: !late_unseen[0] -> forget_late(0)
    :: else
    fi;
    if
    :: !late_unseen[1] -> forget_late(1)
    :: else
    fi;
    if
    :: restore[0] != IDLE -> restore[0] = CUT
    :: else
    fi;
    if
    :: restore[1] != IDLE -> restore[1] = CUT
    :: else
    fi
}

active proctype Target() {
end:
    do
    :: atomic { restore[0] == UNDER_WAY -> execute(0) }
    :: atomic { restore[1] == UNDER_WAY -> execute(1) }
#ifdef FULL
    :: atomic { restore[0] == UNDER_WAY && may_refuse -> refuse(0) }
    :: atomic { restore[1] == UNDER_WAY && may_refuse -> refuse(1) }
#endif
    :: atomic { at(LATE, 0) != NONE -> execute_late(0) }
    :: atomic { at(LATE, 1) != NONE -> execute_late(1) }
    :: atomic { at(LATE_RENAME, BIG_KEY) != NONE -> at(TARGET, BIG_KEY) = at(LATE_RENAME, BIG_KEY); at(LATE_RENAME, BIG_KEY) = NONE }
    :: atomic { FAULT && (restore[0] != IDLE || restore[1] != IDLE) -> strike; end_connections() } /* a restart */
    od
}

/* -- settling ----------------------------------------------------------------------------------------------------- */

inline read_hash(me) {
    if
    :: hash == PERMIT -> believes[me] = 1; seen[me] = NOTHING
#ifdef MISSING_IS_A_VALUE
    :: hash == MISSING -> seen[me] = SAW_MISSING
#else
    :: hash == MISSING -> hash_becomes(UNSETTLED); seen[me] = SAME
#endif
    :: hash == UNSETTLED || hash == FOREIGN -> seen[me] = SAME
    fi
}

inline grant(me) {
    if
#ifdef NO_COMPARE
    :: true -> hash_becomes(PERMIT); believes[me] = 1
#else
    :: seen[me] == SAME || (seen[me] == SAW_MISSING && hash == MISSING) -> hash_becomes(PERMIT); believes[me] = 1
    :: else
#endif
    fi;
    seen[me] = NOTHING
}

/* -- a worker of a proxy: deleting a key at the source, while the target is full ----------------------------------- */

#ifdef DELETE_BY_LATER_PERMIT
#define may_delete(me) true
#define holds_at_delete(me) permitted(me)
#else
#define may_delete(me) permitted(me)
#define holds_at_delete(me) true /* deletes_fail */
#endif
#ifdef DELETE_WITHOUT_EXISTS
#define is_not_at_target(key) true
#else
#define is_not_at_target(key) (at(TARGET, key) == NONE)
#endif
#ifdef DELETE_CLAIMED
#define is_free_to_delete(key) true
#else
#define is_free_to_delete(key) !is_claimed(key)
#endif

/* -- a worker of a proxy: a key on demand ------------------------------------------------------------------------- */

#define wants(me, key) ((key) < KEYS && !moving[me] && applied[me] == MIGRATING && !knows_absent(me, key) && !reads_at_source[me])

inline wanted_key(me, key) {
    if
    :: wants(me, 0) -> key = 0
    :: wants(me, 1) -> key = 1
    fi
}

active [2] proctype Worker() {
    byte key;
    byte me = _pid - 4;
end:
    do
    :: atomic { /* a session needs a key: the script begins */
            free && permitted(me) && (wants(me, 0) || wants(me, 1)) ->
            wanted_key(me, key);
            if
            :: is_absent(key) -> knows_absent(me, key) = 1; key = 0
            :: !is_absent(key) && is_read_at_source(key) -> reads_at_source[me] = 1; key = 0
            :: at(SOURCE, key) != NONE && !is_claimed(key) -> begin_move(me, key); moving[me] = 1
            fi
        }
    :: atomic { told[me] == MOVED -> told[me] = WAIT; knows_absent(me, key) = 1; key = 0; moving[me] = 0 }
    :: atomic { told[me] == UNSURE -> told[me] = WAIT; key = 0; moving[me] = 0 }
    :: atomic { FAULT && runs_for == me -> strike; runs_for = GONE; key = 0; moving[me] = 0 } /* the reply is lost */
    :: atomic { /* the connection is lost before the source has read the request */
            FAULT && !strays && !moving[me] && (wants(me, 0) || wants(me, 1)) ->
            strike;
            strays = 1;
            wanted_key(me, stray_key);
            believes[STRAY] = believes[me]
        }
#ifdef FULL
    :: atomic { /* a key that the target did not take is to be deleted: does the target have one of that name? */
            applied[me] == MIGRATING && !deletes[me] && may_delete(me) && is_not_at_target(BIG_KEY) -> deletes[me] = 1
        }
    :: atomic { /* no: it is deleted at the source, in one step with a look at the permit and the claims */
            deletes[me] && free ->
            deletes[me] = 0;
            if
            :: holds_at_delete(me) && is_free_to_delete(BIG_KEY) ->
                if
                :: at(SOURCE, BIG_KEY) != NONE ->
                    look(SOURCE, BIG_KEY);
                    outdate(BIG_KEY);
                    at(SOURCE, BIG_KEY) = NONE;
                    truth[BIG_KEY] = ABSENT;
#ifdef WITNESS_DELETE
                    assert(false)
#endif
                :: else -> /* it has left, and is deleted at the target as any other */
                    if
                    :: applied[me] == MIGRATING -> knows_absent(me, BIG_KEY) = 1
                    :: else
                    fi
                fi
            :: else
            fi
        }
#endif
#ifdef ABSENT_WITHOUT_PERMIT
    :: atomic { free && wants(me, 0) && is_absent(0) -> knows_absent(me, 0) = 1 }
#endif
    :: atomic { /* UNSETTLED */
            free && !permitted(me) && !moving[me] && (wants(me, 0) || wants(me, 1)) ->
            read_hash(me);
            moving[me] = !believes[me]
        };
        if
        :: atomic { moving[me] -> end_connections() };
            atomic { free -> grant(me); moving[me] = 0 }
        :: !moving[me]
        fi
    od
}

/* -- the migrator ------------------------------------------------------------------------------------------------- */

#define OPENS_SOURCE 0
#define OPENS_TARGET 1
#define SCANS 2
#define ASKS 3
#define WAITS 4
#define SETTLES 5
#define GRANTS 6
#define COPIES 7
#define RENAMES 8
#define UNLINKS 9
#define PASS_ENDS 10
#define COMPLETE 11
#define TAKES_CLAIMS 12
byte step;

/* What a migrator that dies has sent stays where it is. */
inline crash() {
    believes[MIGRATOR] = 0;
    seen[MIGRATOR] = NOTHING;
    told[MIGRATOR] = WAIT;
    if
    :: runs_for == MIGRATOR -> runs_for = GONE
    :: else
    fi;
    if
    :: step == RENAMES && !renamed -> at(LATE_RENAME, BIG_KEY) = at(PIECES, BIG_KEY)
    :: else
    fi;
    at(PIECES, BIG_KEY) = NONE;
    renamed = 0;
    if
    :: unlinks -> unlinks = 0; late_unlinks = 1
    :: else
    fi;
    step = OPENS_SOURCE
}

active proctype Migrator() {
    byte key;
    bit found;
end:
    do
    :: atomic { /* a new call ends what earlier ones have left at the source */
            stored == MIGRATING && step == OPENS_SOURCE ->
#ifndef EARLIER_NOT_ENDED
            late_unlinks = 0;
#endif
            step = OPENS_TARGET
        }
    :: atomic { /* ... and at the target */
            step == OPENS_TARGET ->
#ifndef EARLIER_NOT_ENDED
            at(LATE_RENAME, BIG_KEY) = NONE;
#endif
            step = TAKES_CLAIMS
        }
    :: atomic { /* those of earlier calls. Their copies may be keys at the target already: with claims goes the permit. */
            step == TAKES_CLAIMS && free ->
#ifndef PERMIT_OUTLIVES_CLAIMS
            if
            :: claimed -> hash_becomes(UNSETTLED)
            :: else
            fi;
#endif
            claimed = 0;
            step = SCANS
        }
#ifdef SCAN_BEFORE_BARRIER
    :: atomic { stored == PREPARED && step == OPENS_SOURCE -> step = SCANS }
#endif
    :: atomic { /* SCAN comes to a key */
            step == SCANS && free && key < KEYS ->
            if
            :: at(SOURCE, key) != NONE -> found = 1; step = ASKS
#ifdef SCAN_NOT_COVERING
            :: key == KEYS - 1 -> key++
#endif
            :: at(SOURCE, key) == NONE -> key++
            fi
        }
    :: atomic { step == SCANS && key == KEYS -> key = 0; step = PASS_ENDS }
    :: atomic {
            step == ASKS && free && permitted(MIGRATOR) && stored == MIGRATING ->
            if
            :: at(SOURCE, key) == NONE -> key++; step = SCANS
#ifdef NO_CLAIM
            :: at(SOURCE, key) != NONE && is_big(key) -> step = COPIES
#else
            :: at(SOURCE, key) != NONE && is_big(key) -> claimed = 1; step = COPIES
#endif
            :: at(SOURCE, key) != NONE -> begin_move(MIGRATOR, key); step = WAITS
            :: KEYS == 2 && key == 0 && at(SOURCE, 0) != NONE && at(SOURCE, 1) != NONE -> /* both in one call */
                begin_move(MIGRATOR, 0);
                send(1);
                step = WAITS
            fi
        }
    :: atomic { step == ASKS && free && !permitted(MIGRATOR) && stored == MIGRATING -> read_hash(MIGRATOR); step = SETTLES }
    :: atomic { step == SETTLES && believes[MIGRATOR] -> step = SCANS }
    :: atomic {
            step == SETTLES && !believes[MIGRATOR] ->
#ifndef NO_CLOSING
            end_connections();
#endif
            step = GRANTS
        }
    :: atomic { step == GRANTS && free -> grant(MIGRATOR); step = SCANS }
    :: atomic { step == WAITS && told[MIGRATOR] != WAIT -> told[MIGRATOR] = WAIT; step = SCANS }
    :: atomic { /* the value was read at the source, and written under the temporary name, piece by piece */
            step == COPIES && free ->
            if
            :: at(SOURCE, BIG_KEY) == NONE -> claimed = 0; step = SCANS /* it has expired */
            :: else -> at(PIECES, BIG_KEY) = at(SOURCE, BIG_KEY); step = RENAMES
            fi
        }
    :: atomic { /* the target executes RENAME */
            step == RENAMES && !renamed -> renamed = 1; at(TARGET, BIG_KEY) = at(PIECES, BIG_KEY)
        }
    :: atomic { /* the temporary name has expired: RENAME fails */
            FAULT && step == RENAMES && !renamed -> strike; at(PIECES, BIG_KEY) = NONE; step = COPIES
        }
    :: atomic { step == RENAMES && renamed -> renamed = 0; at(PIECES, BIG_KEY) = NONE; unlinks = 1; step = UNLINKS }
    :: atomic { step == UNLINKS && !unlinks -> step = SCANS }
    :: atomic { step == PASS_ENDS && found -> found = 0; step = SCANS }
    :: atomic { /* complete: a pass has found nothing, and nothing is on its way any more */
            step == PASS_ENDS && !found && free ->
            if
#ifdef COMPLETE_UNSETTLED
            :: true -> step = COMPLETE
#else
            :: permitted(MIGRATOR) -> step = COMPLETE
            :: !permitted(MIGRATOR) -> read_hash(MIGRATOR); step = SETTLES
#endif
            fi
        }
    :: atomic { FAULT && step != OPENS_SOURCE && step != COMPLETE -> strike; crash(); key = 0; found = 0 }
    :: atomic { step == COMPLETE && stored == FINISHED -> step = OPENS_SOURCE; believes[MIGRATOR] = 0 }
    od
}

/* -- topom -------------------------------------------------------------------------------------------------------- */

#ifdef NO_DRAIN
#define drained_everywhere true
#else
#define drained_everywhere (applied[0] == PREPARED && applied[1] == PREPARED)
#endif

active proctype Topom() {
    do
    :: stored == AT_SOURCE -> stored = PREPARED
    :: atomic { /* drained: everybody has locked; a proxy that has not is fenced, and then takes no part */
            stored == PREPARED && drained_everywhere -> stored = MIGRATING
        }
    :: atomic { stored == MIGRATING && step == COMPLETE -> stored = FINISHED;
#ifndef OLDER_DATA
            /* complete */
            assert(at(SOURCE, 0) == NONE && at(SOURCE, 1) == NONE)
#endif
        }
    :: atomic { /* everybody has heard; the hash is removed before the slot is at rest */
            stored == FINISHED && applied[0] == FINISHED && applied[1] == FINISHED && free && step == OPENS_SOURCE ->
#ifndef HASH_LEFT
            hash_becomes(MISSING);
#endif
            stored = AT_TARGET;
            round++
        }
    :: atomic { /* it is moved back, by the same protocol: all at once here. Its lock waits for what is under way. */
            stored == AT_TARGET && round < ROUNDS && !moving[0] && !moving[1] && !reads_at_source[0] &&
            !reads_at_source[1] ->
            at(SOURCE, 0) = at(TARGET, 0);
            at(SOURCE, 1) = at(TARGET, 1);
            at(TARGET, 0) = NONE;
            at(TARGET, 1) = NONE;
            applied[0] = AT_SOURCE;
            applied[1] = AT_SOURCE;
            stored = AT_SOURCE
        }
    :: atomic { stored == AT_TARGET && round == ROUNDS -> break }
    od;
#ifdef WITNESS_END
    assert(false)
#endif
}
