/* Moving by the stream: what comes after the lock. One subset of slots has been copied. It switches, the source is
 * cleaned, and the slots come home, while the stream goes on for other subsets of the same source and target.
 *
 * It shows that what is deleted at the source reaches neither the target nor a key that has come home, whatever becomes
 * of the applier, of topom, of those that clean, and of both servers. stream.pml shows that one applier at a time applies
 * each change once and that no switch comes before the marker; that is taken for granted here. README.md says what is
 * left out and why that is sound.
 *
 * There is one key. Its value is the number of the change that wrote it; 0 is none.
 */

#ifndef WRITES
#define WRITES 2 /* by clients */
#endif
#ifndef MARKERS
#define MARKERS 1 /* one for each lock that comes so far */
#endif
#ifndef SOURCE_RESTARTS
#define SOURCE_RESTARTS 0
#endif
#ifndef TARGET_RESTARTS
#define TARGET_RESTARTS 0
#endif
byte markers_left = MARKERS;
byte source_restarts_left = SOURCE_RESTARTS;
byte target_restarts_left = TARGET_RESTARTS;
byte writes;

/* -- the store ---------------------------------------------------------------------------------------------------- */

#define COPYING 0
#define LOCKED 1
#define DROPPED 2  /* locked; the drained offset is stored: the subset leaves the filter there */
#define SWITCHED 3 /* the target is the owner */
#define CLEANING 4
#define CLEANED 5
#define RETURNING 6 /* the next action: home; the target is the owner */
#define RETURNED 7  /* the source is the owner */
byte stored;
bit dropped; /* so it stands in the store */

#define at_source (stored == COPYING || stored == RETURNED)
#define at_target (stored >= SWITCHED && stored <= RETURNING)

/* -- the source and its stream ------------------------------------------------------------------------------------ */

#define MOST 6
#define MARKER 9
byte source = 1;   /* its key */
byte stream[MOST]; /* what the key became with each change */
byte length;
byte saved_source = 1;
bit at_home; /* its key is one that has come home */
bit swept = 1; /* it is recorded that this process has none that the source does not own */

#define NOBODY 2
byte mark = NOBODY, saved_mark = NOBODY; /* of whom that cleans */

inline record(what) {
    stream[length] = what;
    length++
}

/* -- the target --------------------------------------------------------------------------------------------------- */

byte target = 1;
byte place; /* its position in the stream */
byte saved_target = 1, saved_place;
bit target_same; /* it is the process at which level was seen */

/* -- clients ------------------------------------------------------------------------------------------------------ */

byte truth = 1; /* what the last acknowledged command left */

active proctype Client() {
end:
    do
    :: atomic { at_source -> assert(source == truth) }
    :: atomic { at_target -> assert(target == truth) }
    :: atomic {
            (at_source || at_target) && writes < WRITES && length < MOST ->
            writes++;
            truth = writes + 1;
            if
            :: at_source -> source = truth; record(truth)
            :: at_target -> target = truth
            fi
        }
    od
}

/* -- the applier -------------------------------------------------------------------------------------------------- */

bit wants = 1; /* the subset is in its filter */
byte marked;   /* the place behind the marker; 0: none */

#ifdef REPLAYS_TO_THE_DRAINED_OFFSET
#define is_wanted (wants || (dropped && place < marked_for_good))
byte marked_for_good;
#else
#define is_wanted wants
#endif

/* It says again what it wants to whoever connects; a new process has nothing else. */
inline look_at_store() {
    wants = !dropped
}

active proctype Applier() {
end:
    do
    :: atomic {
            place < length ->
            if
            :: is_wanted && stream[place] != MARKER ->
                assert(!at_target && stored != RETURNED); /* nothing of a subset that has switched is applied */
                target = stream[place]
            :: else
            fi;
            place++
        }
    :: atomic { true -> look_at_store() } /* another process, from the position on */
    od
}

/* -- who cleans the source ---------------------------------------------------------------------------------------- */

#define IDLE 0
#define ASKED 1  /* it is about to set its mark */
#define MARKED 2 /* and to look at the store */
#define CLEANS 3
#define ENDED 4
byte cleaner[2];
bit same[2]; /* the source is the process that it has set its mark at */

#ifdef CLEANS_WITHOUT_MARK
#define may_delete(me) true
#else
#ifdef MARK_WITHOUT_RUN_ID
#define may_delete(me) (mark == me)
#else
#define may_delete(me) (mark == me && same[me])
#endif
#endif

active [2] proctype Cleaner() {
    byte me = _pid - 2;
end:
    do
    :: atomic { cleaner[me] == IDLE && stored == CLEANING -> cleaner[me] = ASKED }
    :: atomic { cleaner[me] == ASKED -> cleaner[me] = MARKED; mark = me; same[me] = 1 }
    :: atomic {
            cleaner[me] == MARKED ->
#ifdef NO_LOOK_AFTER_MARK
            cleaner[me] = CLEANS
#else
            cleaner[me] = (stored == CLEANING -> CLEANS : ENDED)
#endif
        }
    :: atomic { /* the mark is looked at in the step that deletes */
            cleaner[me] == CLEANS && may_delete(me) && source && length < MOST ->
            assert(!at_home);
            source = 0;
            record(0)
        }
    :: atomic { cleaner[me] == CLEANS && may_delete(me) && !source && stored == CLEANING -> swept = 1; stored = CLEANED }
    :: atomic { cleaner[me] != IDLE && cleaner[me] != ENDED -> cleaner[me] = ENDED; same[me] = 0 }
    od
}

/* -- servers ------------------------------------------------------------------------------------------------------ */

active proctype Source() {
end:
    do
    :: atomic { at_target && source && !at_home && length < MOST -> source = 0; record(0) } /* what was left expires */
    :: atomic { source_restarts_left > 0 -> saved_source = source; saved_mark = mark }
    :: atomic { /* with older data. A copy that had not switched is void: that is in stream.pml. */
            source_restarts_left > 0 && stored >= SWITCHED ->
            source_restarts_left--;
            source = saved_source;
            mark = saved_mark;
            swept = 0;
            same[0] = 0;
            same[1] = 0;
            if
            :: stored == RETURNED -> truth = source /* the owner's own loss */
            :: else -> at_home = 0
            fi;
            saved_source = 0;
            saved_mark = NOBODY
        }
    od
}

active proctype Target() {
end:
    do
    :: atomic { target_restarts_left > 0 -> saved_target = target; saved_place = place }
    :: atomic {
            target_restarts_left > 0 ->
            target_restarts_left--;
            target = saved_target;
            place = saved_place;
            target_same = 0;
            if
            :: at_target -> truth = target /* the owner's own loss */
            :: else
            fi;
            look_at_store(); /* as over each connection to another process */
            saved_target = 0;
            saved_place = 0
        }
    od
}

/* -- topom -------------------------------------------------------------------------------------------------------- */

/* What this topom knows; the one after it does not. */
bit told;      /* the applier has said that it has dropped the subset, and the source counts as not swept */
bit withdrawn; /* the mark of whoever cleans */
bit drop_later;

active proctype Topom() {
end:
    do
    :: atomic { stored == COPYING && markers_left > 0 -> stored = LOCKED }
    :: atomic {
            stored == LOCKED && !marked && markers_left > 0 && length < MOST ->
            markers_left--;
            record(MARKER);
            marked = length
        }
    :: atomic { stored == LOCKED -> stored = COPYING; marked = 0 } /* the lock has lasted too long */
#ifdef STORED_AFTER_TABLE
    :: atomic { stored == LOCKED && marked && place >= marked -> wants = 0; swept = 0; stored = SWITCHED; drop_later = 1 }
    :: atomic { drop_later -> drop_later = 0; dropped = 1 }
#else
    :: atomic { /* level */
            stored == LOCKED && marked && place >= marked ->
            target_same = 1;
            dropped = 1;
#ifdef REPLAYS_TO_THE_DRAINED_OFFSET
            marked_for_good = marked;
#endif
            stored = DROPPED
        }
    :: atomic { /* owned: slots that switch leave keys behind, so the source is not swept any more */
            stored == DROPPED && !told ->
            wants = 0;
            told = 1;
#ifndef SWEPT_STAYS
            swept = 0
#endif
        }
#ifdef DROPPED_LATE
    :: atomic { stored == DROPPED && target_same -> swept = 0; stored = SWITCHED; marked = 0 }
    :: atomic { stored >= CLEANING && !told -> wants = 0; told = 1 }
#else
    :: atomic { stored == DROPPED && told && target_same -> stored = SWITCHED; marked = 0 }
#endif
    :: atomic { /* no switch comes of it: the copy begins anew, for changes may have passed the filter by */
            stored == DROPPED ->
            marked = 0;
            dropped = 0;
            told = 0;
            stored = COPYING;
#ifndef DROP_TAKEN_BACK
            target = source;
            place = length;
            saved_target = target;
            saved_place = place;
            wants = 1
#endif
        }
#endif
    :: atomic { stored == SWITCHED -> stored = CLEANING }
#ifdef WITHDRAWN_BEFORE_STORED
    :: atomic { (stored == CLEANING || stored == CLEANED) && !withdrawn -> mark = NOBODY; withdrawn = 1 }
    :: atomic { (stored == CLEANING || stored == CLEANED) && withdrawn -> stored = RETURNING }
#else
    :: atomic { stored == CLEANING || stored == CLEANED -> stored = RETURNING }
#ifndef NOT_WITHDRAWN
    :: atomic { stored == RETURNING && !withdrawn -> mark = NOBODY; withdrawn = 1 }
#endif
#endif
    :: atomic { /* a sweep by the rules of its own: what cleaning has left, or older data have brought back */
            stored == RETURNING && !swept && !at_home -> source = 0; swept = 1
        }
#if defined(NOT_WITHDRAWN) || defined(WITHDRAWN_AT_SWITCH)
    :: atomic { stored == RETURNING && swept && !at_home ->
#else
    :: atomic { /* the copy home begins */
            stored == RETURNING && swept && withdrawn && !at_home ->
#endif
            assert(!source); /* owned */
            source = target;
            at_home = 1
        }
    :: atomic { /* and ends, by stream.pml */
            stored == RETURNING && at_home && swept ->
            source = target;
            stored = RETURNED
#ifdef WITNESS_HOME
            ;
            assert(writes < WRITES)
#endif
        }
    :: atomic { told || withdrawn || drop_later -> told = 0; withdrawn = 0; drop_later = 0 } /* another topom */
    od
}
