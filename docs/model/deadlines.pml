/* Moving by the stream: a key with a deadline. Its copy at the target never expires by itself before the switch.
 *
 * It shows that a key is there after the switch if, and only if, it would be there at the source: a PERSIST just before
 * the deadline is not lost, however late it is applied, and no key outlives its deadline. Changes are applied once and in
 * order, as stream.pml shows. README.md says what is left out and why that is sound.
 *
 * There is one deadline, and time comes to it in two steps: it is near (within the margin), and it is due.
 */

#ifndef MOST
#define MOST 4 /* changes in the stream */
#endif
#ifndef LOCKS
#define LOCKS 2
#endif
byte locks_left = LOCKS;

#define FAR 0
#define NEAR 1
#define DUE 2
byte clock;

/* -- the source and its stream ------------------------------------------------------------------------------------ */

bit source = 1;   /* it has the key */
bit deadline = 1; /* which has the deadline */
#define is_over (source && deadline && clock == DUE)

#define SET 0
#define PERSIST 1
#define EXPIRE 2 /* at the deadline */
#define DEL 3    /* it has expired */
byte stream[MOST];
byte length;

inline record(what) {
    stream[length] = what;
    length++
}

/* -- the target --------------------------------------------------------------------------------------------------- */

#define NONE 0
#define PLACEHOLDER 1 /* far ahead */
#define REAL 2
bit target;
byte has = NONE;
byte place;
#define lapses (target && has == REAL && clock == DUE)
#define visible (target && !lapses)

inline lapse() {
    if
    :: lapses -> target = 0; has = NONE
    :: else
    fi
}

/* -- the applier and topom ---------------------------------------------------------------------------------------- */

#define START 0
#define COPYING 1
#define LOCKED 2
#define LEVEL 3 /* locked; the deadlines are those of the source */
#define SWITCHED 4
byte stored;
bit noted; /* the applier knows the true deadline */
bit late;  /* it had not withheld the deadline in time: its clock says so when the reply comes, and the copy is void */

#ifdef SETTLED_IS_FORGOTTEN
bit forgotten; /* what was set within a lock counts as done, though no switch came of it */
#define is_noted (!forgotten)
#else
#define is_noted true
#endif
bit expected, expected_deadline; /* what the source had when it was drained */

#ifdef DEADLINE_ON_COPY
#define to_write REAL
#else
#define to_write (clock == FAR -> REAL : PLACEHOLDER)
#endif

inline change() {
    lapse();
    if
    :: stream[place] == SET -> target = 1; has = NONE; noted = 0
    :: stream[place] == PERSIST ->
        noted = 0;
        if
        :: target -> has = NONE
        :: else
        fi
    :: stream[place] == EXPIRE ->
        noted = 1;
        if
        :: target -> has = to_write
        :: else
        fi
    :: stream[place] == DEL -> target = 0; has = NONE; noted = 0
    fi;
    stream[place] = 0;
    place++
}

active proctype Everything() {
end:
    do
    /* Time. */
    :: atomic { clock == FAR -> clock = NEAR }
    :: atomic {
            clock == NEAR ->
            clock = DUE;
#ifndef PAUSE_NOT_NOTICED
            late = ((stored == COPYING || stored == LOCKED) && target && has == REAL && is_noted)
#endif
        }

    /* Clients at the source, which expires a key before it does anything else with it. */
    :: atomic { is_over && length < MOST -> source = 0; deadline = 0; record(DEL) }
    :: atomic {
            (stored < LOCKED) && !is_over && length < MOST ->
            if
            :: source = 1; deadline = 0; record(SET)
            :: source && deadline -> deadline = 0; record(PERSIST)
            :: source && !deadline && clock != DUE -> deadline = 1; record(EXPIRE)
            fi
        }

    /* The copy. */
    :: atomic { /* the key's value in the snapshot */
            stored == START && (!is_over || length < MOST) ->
            place = length;
            target = source;
            noted = source && deadline;
            if
            :: noted -> has = to_write
            :: else
            fi;
#ifndef PAUSE_NOT_NOTICED
            late = noted && clock == DUE && has == REAL;
#endif
            stored = COPYING
        }
    :: atomic { (stored == COPYING || stored == LOCKED) && place < length -> change() }
#ifndef DEADLINE_ON_COPY
    :: atomic { /* it is withheld once it is near */
            stored == COPYING && clock == NEAR && target && has == REAL && is_noted -> has = PLACEHOLDER
        }
#endif
    :: atomic {
            stored == COPYING && locks_left > 0 ->
            locks_left--;
            expected = source;
            expected_deadline = deadline;
            stored = LOCKED
        }
#ifdef DEADLINES_BEFORE_LEVEL
    :: atomic { stored == LOCKED && has == PLACEHOLDER && noted -> has = REAL }
#endif
    :: atomic { /* level */
            stored == LOCKED && place == length && !late ->
#ifndef DEADLINES_NOT_SET
            if
            :: noted && target -> has = REAL
            :: else
            fi;
#endif
            stored = LEVEL
        }
    :: atomic { /* the lock has lasted too long */
            stored == LOCKED || stored == LEVEL ->
#ifdef SETTLED_IS_FORGOTTEN
            forgotten = (stored == LEVEL);
#endif
            expected = 0;
            expected_deadline = 0;
            stored = COPYING
        }
    :: atomic {
            stored == LEVEL -> stored = SWITCHED
#ifdef WITNESS_LAPSES
            ;
            assert(!lapses)
#endif
        }
    :: atomic { stored == SWITCHED -> assert(visible == (expected && !(expected_deadline && clock == DUE))) }
    od
}
