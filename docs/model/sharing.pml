/* Moving by the stream: two copies of one source, to two targets, by one stream. Each has a subset of slots, reader,
 * filter, marker and lock of its own; they share the link, the snapshot, and the spool, which is freed behind the slower
 * one. The subsets switch one after the other, in any order, while either copy may be given up at any moment.
 *
 * It shows that each change is applied once, that a target has all when its slots switch, and that what becomes of one
 * copy never takes from the other one what it has yet to read.
 *
 * Left out is what concerns one copy alone. stream.pml shows it for each of them, as each has a target and a position
 * of its own:
 * - A batch and its position are one step; a lost reply, a paused process and a batch of a copy that has ended change
 *   nothing. So a copy begins anew only when what this migrator had of it is gone: another process is as good as none.
 * - The lock and its acknowledgements are one step. So is the switch, with the comparison of run ids.
 * - A restart of a server with older data, and a failover, end a copy. Here a copy may end at any moment.
 * - A cancel is such an end. A target is swept in the step in which a copy to it begins.
 * Who is given up because the disk gets short of room is any copy at any moment, and not only the one that is furthest
 * behind. A link that fails is both given up. What is read by nobody is freed at once, and not with the next write.
 * What the source sends while nobody follows it is in the next snapshot.
 */

#ifndef CHANGES
#define CHANGES 2 /* by clients, in both subsets together */
#endif
#ifndef BEGINNINGS
#define BEGINNINGS 3 /* copies that begin, of both subsets together */
#endif
#ifndef MARKERS
#define MARKERS 2 /* locks that come so far */
#endif
#define MOST (CHANGES + MARKERS + 2)
byte changes_left = CHANGES;
byte beginnings_left = BEGINNINGS;
byte markers_left = MARKERS;

/* -- the store, of each subset ------------------------------------------------------------------------------------ */

#define REST 0
#define COPYING 1
#define LOCKED 2
#define SWITCHED 3
byte state[2];

/* -- the source --------------------------------------------------------------------------------------------------- */

byte acknowledged[2]; /* changes by clients, of each subset: its data */
bit cleaned[2];       /* its keys of a subset that has switched are deleted */

/* What its stream has had since it is followed: of which subset, and which of its changes, or one of these. */
#define MARKER 20
#define DELETED 21
bit subset[MOST];
byte what[MOST];
byte length;

inline record(its, which) {
    if
    :: followed -> subset[length] = its; what[length] = which; length++
    :: else
    fi
}

/* -- the migrator: the spool -------------------------------------------------------------------------------------- */

bit followed; /* the stream has begun */
bit snapshot_held;
byte in_snapshot[2]; /* the changes that it has, of each subset */
byte held_from;      /* what the source sent before is freed */

/* -- the migrator: the copies ------------------------------------------------------------------------------------- */

#define NONE 0
#define JOINED 1 /* it waits for the stream to begin */
#define SNAPSHOT 2
#define STREAM 3
#define GIVEN_UP 4 /* its reader is closed, of which it has yet to hear */
byte reader[2];
byte at[2];     /* what it reads next */
bit wanted[2];  /* its subset is in its filter */
byte marker[2]; /* the place behind its own; 0: none */
bit passed[2];  /* it has come by */

#define reads(one) (reader[one] == SNAPSHOT || reader[one] == STREAM)
#ifdef FREED_BEFORE_ENDED
bit freed[2];
#define needs(one) (reads(one) && !freed[one])
#else
#define needs(one) reads(one)
#endif

/* -- the targets -------------------------------------------------------------------------------------------------- */

byte applied[2]; /* changes that the target of each subset has */

/* -- topom: what it knows; the one after it does not -------------------------------------------------------------- */

bit has_copy[2];
bit told[2];  /* a migrator is about to hear of it */
bit level[2];

/* -- steps of the migrator ---------------------------------------------------------------------------------------- */

/* Free what no reader needs any more. The stream ends with its last copy. */
inline let_go() {
    if
#ifdef SNAPSHOT_FREED_BY_FIRST
    :: (reader[0] == STREAM || reader[1] == STREAM) -> snapshot_held = 0
#else
    :: !(reader[0] == SNAPSHOT && needs(0)) && !(reader[1] == SNAPSHOT && needs(1)) -> snapshot_held = 0
#endif
    :: else
    fi;
    if
#ifdef FREED_BY_FIRST
    :: needs(0) && needs(1) -> held_from = (at[0] > at[1] -> at[0] : at[1])
#else
    :: needs(0) && needs(1) -> held_from = (at[0] < at[1] -> at[0] : at[1])
#endif
    :: needs(0) && !needs(1) -> held_from = at[0]
    :: !needs(0) && needs(1) -> held_from = at[1]
    :: !needs(0) && !needs(1) && (reads(0) || reads(1)) -> held_from = length
    :: else -> end_stream()
    fi
}

inline end_stream() {
    if
    :: reader[0] <= JOINED && reader[1] <= JOINED ->
        followed = 0;
        snapshot_held = 0;
        in_snapshot[0] = 0;
        in_snapshot[1] = 0;
        held_from = 0;
        do
        :: length > 0 -> length--; subset[length] = 0; what[length] = 0
        :: else -> break
        od
    :: else
    fi
}

inline leave(one) {
#ifdef ENDS_WITH_FIRST
    if
    :: reads(one) && reads(1 - one) -> snapshot_held = 0; held_from = MOST + 1; reader[one] = NONE
    :: else -> reader[one] = NONE; let_go()
    fi;
#else
    reader[one] = NONE;
#endif
#ifndef GOES_ON_IN_ANOTHER
    at[one] = 0;
#endif
    wanted[one] = 0;
    marker[one] = 0;
    passed[one] = 0;
#ifdef FREED_BEFORE_ENDED
    freed[one] = 0;
#endif
#ifndef ENDS_WITH_FIRST
    let_go()
#endif
}

inline begin_reading(one) {
    if
    :: reader[one] == JOINED -> reader[one] = SNAPSHOT; at[one] = length; wanted[one] = 1
    :: else
    fi
}

inline come_by(one) {
    passed[one] = 1;
#ifndef FILTER_NOT_LEFT
    wanted[one] = 0
#endif
}

active [2] proctype Copy() {
    byte me = _pid;
end:
    do
    :: atomic { /* of whoever asks first: the source makes one snapshot for all that have joined */
            reader[me] == JOINED && !followed ->
            followed = 1;
            snapshot_held = 1;
            in_snapshot[0] = acknowledged[0];
            in_snapshot[1] = acknowledged[1];
            begin_reading(0);
            begin_reading(1)
        }
    :: atomic { told[me] -> /* who comes too late for the stream is refused */
            told[me] = 0;
            if
#ifdef JOINS_LATE
            :: followed -> reader[me] = SNAPSHOT; at[me] = held_from; wanted[me] = 1
#else
            :: followed
#endif
            :: !followed -> reader[me] = JOINED
            fi
        }
    :: atomic {
            reader[me] == SNAPSHOT ->
            assert(snapshot_held); /* unharmed */
            assert(state[me] != SWITCHED); /* hidden */
            applied[me] = in_snapshot[me];
            reader[me] = STREAM;
            let_go()
        }
    :: atomic {
            reader[me] == STREAM && at[me] < length ->
            assert(at[me] >= held_from); /* unharmed */
            if
            :: what[at[me]] == MARKER ->
#ifdef MARKER_OF_ANY
                if
                :: marker[me] -> come_by(me)
                :: else
                fi
#else
                if
                :: marker[me] == at[me] + 1 -> come_by(me)
                :: else
                fi;
#ifdef SEEN_BY_ANY
                if
                :: marker[1 - me] == at[me] + 1 -> passed[1 - me] = 1
                :: else
                fi;
#endif
#ifdef FILTER_SHARED
                if
                :: marker[1 - me] == at[me] + 1 -> wanted[1 - me] = 0
                :: else
                fi
#endif
#endif
            :: what[at[me]] != MARKER && subset[at[me]] == me && wanted[me] ->
                assert(state[me] != SWITCHED); /* hidden */
                assert(applied[me] + 1 == what[at[me]]); /* applied-once */
                applied[me]++
            :: else
            fi;
            at[me]++;
            let_go()
        }
#ifdef POSITION_SHARED
    :: atomic { reader[me] == STREAM && reader[1 - me] == STREAM -> at[me] = at[1 - me] } /* its connection was lost */
#endif
#ifdef GOES_ON_IN_ANOTHER
    :: atomic { state[me] == COPYING && reader[me] == NONE && followed && at[me] -> reader[me] = STREAM; wanted[me] = 1 }
#endif
    :: atomic { /* within the lock */
            state[me] == LOCKED && has_copy[me] && reader[me] == STREAM && !marker[me] && markers_left > 0 ->
            markers_left--;
            record(me, MARKER);
            marker[me] = length
        }
#ifdef FREED_BEFORE_ENDED
    :: atomic { needs(me) -> freed[me] = 1; let_go() }
    :: atomic { reads(me) && freed[me] -> reader[me] = GIVEN_UP }
#else
    :: atomic { /* room gets short: whoever waits for it hears of that */
            reads(me) ->
            reader[me] = GIVEN_UP;
#ifdef LEFT_IS_LEVEL
            passed[me] = (marker[me] != 0);
#endif
            let_go()
        }
#endif
    :: atomic { reader[me] != NONE -> leave(me) } /* it is closed, or was given up, or fails by itself */
    od
}

/* -- topom, clients and source, of each subset -------------------------------------------------------------------- */

inline forget(one) {
    has_copy[one] = 0;
    told[one] = 0;
    level[one] = 0
}

active [2] proctype Subset() {
    byte me = _pid - 2;
end:
    do
    :: atomic { /* a client */
            state[me] <= COPYING && changes_left > 0 ->
            changes_left--;
            acknowledged[me]++;
            record(me, acknowledged[me])
        }
    :: atomic { state[me] == SWITCHED && !cleaned[me] -> cleaned[me] = 1; record(me, DELETED) }
    :: atomic {
            state[me] == REST && beginnings_left > 0 && reader[me] == NONE ->
            beginnings_left--;
            state[me] = COPYING;
            applied[me] = 0;
#ifdef GOES_ON_IN_ANOTHER
            at[me] = 0;
#endif
            has_copy[me] = 1;
            told[me] = 1
        }
    :: atomic { state[me] == COPYING && has_copy[me] && !told[me] -> state[me] = LOCKED }
    :: atomic { state[me] == LOCKED && has_copy[me] && passed[me] -> level[me] = 1 }
    :: atomic {
            state[me] == LOCKED && level[me] ->
            assert(applied[me] == acknowledged[me]); /* level */
            state[me] = SWITCHED;
            forget(me);
#ifdef WITNESS_BOTH
            assert(beginnings_left > 0 || state[1 - me] != SWITCHED)
#endif
        }
    :: atomic { /* the lock has lasted too long, the copy is void, or it was cancelled */
            state[me] == COPYING || state[me] == LOCKED ->
            state[me] = REST;
            forget(me)
        }
    od
}

active proctype Faults() {
end:
    do
    :: atomic { true -> forget(0); forget(1) } /* topom is killed; the next one finds what is stored */
    :: atomic { /* the migrator is */
            reader[0] != NONE || reader[1] != NONE ->
            told[0] = 0;
            told[1] = 0;
            leave(0);
            leave(1)
        }
    od
}
