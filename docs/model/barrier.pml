/* The barrier: who sends commands for one slot where, while it goes from a source to a target.
 *
 * It shows one-owner, drained and epochs, whatever becomes of two proxies, of two topoms that share a store, of their
 * messages and of their connections to the source. keys.pml builds on it. README.md says what is left out and why
 * that is sound.
 *
 * There are no clocks: a lease may end, and a wait may be given up, at any time. There are no channels to topom either:
 * a proxy may hear of any table that is newer than its own, or of none, and topom may learn of an acknowledgement at any
 * later time, so that messages are lost, delayed and doubled as they like. There are no numbers of epochs: of each proxy
 * it is known which tables are newer than its own. So there may be any number of them.
 */

#ifndef LIVES
#define LIVES 2 /* identities of a proxy: it takes another one after a crash, and when it was fenced */
#endif

/* Tables. Pending and preparing are as good as at rest here: proxies send to the source. */
#define AT_SOURCE 0
#define PREPARED 1
#define MIGRATING 2
#define FINISHED 3

/* -- the store ---------------------------------------------------------------------------------------------------- */

#define INSTANCES (2 * LIVES)
byte stored; /* the table */
#ifdef NO_COMPARE_AND_SWAP
bit current[2]; /* by topom: what it takes for the state is what is stored */
#define some_topom (current[0] || current[1])
#else
#define some_topom true
#endif
bit member[INSTANCES];
bit fenced[INSTANCES];
bit cut_off[INSTANCES]; /* known to be fenced at the source */
bit acknowledged[INSTANCES]; /* the stored table */

/* -- proxies ------------------------------------------------------------------------------------------------------ */

byte life[2];
#define instance(proxy) (2 * life[proxy] + (proxy))
#ifdef ONE_COMES_BACK
#define lives(proxy) (LIVES - (proxy)) /* the other one has one life less */
#else
#define lives(proxy) LIVES
#endif
#define is_gone(proxy) (life[proxy] == lives(proxy))
bit renamed[2]; /* it knows its former identity */
bit registered[2]; /* under its present identity */
bit has_table[2];
byte table[2]; /* the one in force */
byte newer[2]; /* the tables stored since that one, or since it registered; a bit each */
bit kept[2]; /* it has acknowledged its table */
bit given_up[2]; /* a lock that was not acknowledged, and is unlocked again */

/* Connections to the source. One to the target needs no state: see README.md. */
#define DOWN 0
#define NAMED 1 /* CLIENT SETNAME was run, the look for the fence was not */
#define READY 2
#define CHECKED 3 /* a mistake: the look for the fence came first */
byte connection[2];
bit sent[2]; /* a command that the source has not run */
bit left[INSTANCES]; /* the same over a connection that the proxy has lost, or died with */
bit not_ended[2]; /* it has lost a connection, and does not know that the source has ended it */
bit fencing[INSTANCES]; /* topom has begun to fence it */
bit fence[INSTANCES]; /* the user exists at the source */

bit handed_over; /* a command was sent to the target */

/* one-owner: once the target runs commands, the source runs none. */
inline execute(command) {
    assert(!handed_over);
    command = 0
}

/* A connection ends and leaves with the source what it had to run. */
inline lose(proxy) {
    if
    :: sent[proxy] -> left[instance(proxy)] = 1; sent[proxy] = 0; not_ended[proxy] = 1
    :: else
    fi;
    connection[proxy] = DOWN
}

/* The source ends what it finds by the proxy's name. */
inline end_lost(proxy) {
    left[instance(proxy)] = 0;
    if
    :: renamed[proxy] -> left[instance(proxy) - 2] = 0
    :: else
    fi;
    not_ended[proxy] = 0
}

/* epochs: only a newer table is taken. */
inline take(proxy, what) {
    table[proxy] = what;
    has_table[proxy] = 1;
#ifndef NO_EPOCH_CHECK_AT_PROXY
    if
    :: what == stored -> newer[proxy] = 0
    :: else
    fi;
#endif
    kept[proxy] = 0;
    given_up[proxy] = 0
}

#ifdef NO_EPOCH_CHECK_AT_PROXY
#define has_newest(proxy) (table[proxy] == stored)
#else
#define has_newest(proxy) (newer[proxy] == 0)
#endif
#define may_hear(proxy, what) (!is_gone(proxy) && registered[proxy] && (newer[proxy] & (1 << what)))

inline register(proxy) {
    member[instance(proxy)] = 1;
    registered[proxy] = 1;
    acknowledged[instance(proxy)] = 0
}

#define sends_to_source(proxy) \
    (!is_gone(proxy) && has_table[proxy] && \
     (table[proxy] == AT_SOURCE || (table[proxy] == PREPARED && given_up[proxy])))

/* drained: nothing that it has sent can still be run at the source. */
#ifdef NO_DRAIN
#define is_drained(proxy) true
#else
#ifdef NO_ENDING
#define is_drained(proxy) (!sent[proxy])
#else
#define is_drained(proxy) (!sent[proxy] && !not_ended[proxy])
#endif
#endif
#define holds(proxy) (table[proxy] == AT_SOURCE || (!given_up[proxy] && is_drained(proxy)))

#ifdef LOCK_NOT_KEPT
#define may_give_up(proxy) true
#else
#define may_give_up(proxy) (!kept[proxy])
#endif
#if LIVES > 1
#define nothing_at_source \
    (!sent[0] && !sent[1] && !left[0] && !left[1] && !left[2] && !left[3])
#else
#define nothing_at_source (!sent[0] && !sent[1] && !left[0] && !left[1])
#endif

active [2] proctype Proxy() {
    byte me = _pid;
end:
    do
    /* Tables. */
    :: atomic { /* topom stores that it is a member before it says anything else to it */
            !is_gone(me) && !registered[me] && some_topom -> register(me);
            newer[me] = 1 << stored
        }
    :: atomic { may_hear(me, AT_SOURCE) -> take(me, AT_SOURCE) }
    :: atomic { may_hear(me, PREPARED) -> take(me, PREPARED) }
    :: atomic { may_hear(me, MIGRATING) -> take(me, MIGRATING) }
    :: atomic { may_hear(me, FINISHED) -> take(me, FINISHED) }
    :: atomic {
            !is_gone(me) && has_table[me] && !kept[me] && holds(me) ->
            kept[me] = 1;
            acknowledged[instance(me)] = has_newest(me)
        }
    :: atomic { /* it did not drain in time: refused, and unlocked. Not once it is acknowledged. */
            !is_gone(me) && has_table[me] && table[me] == PREPARED && !given_up[me] && may_give_up(me) ->
            given_up[me] = 1
        }

    /* Commands. */
#ifdef FENCE_SEEN_BEFORE_NAME
    :: atomic {
            sends_to_source(me) && connection[me] == DOWN && !fence[instance(me)] -> connection[me] = CHECKED
        }
    :: atomic { connection[me] == CHECKED -> connection[me] = READY }
#else
    :: atomic { sends_to_source(me) && connection[me] == DOWN -> connection[me] = NAMED }
    :: atomic { connection[me] == NAMED && !fence[instance(me)] -> connection[me] = READY }
#endif
    :: atomic { sends_to_source(me) && connection[me] == READY && !sent[me] -> sent[me] = 1 }
    :: atomic { /* drained: nobody sends to the target while something sent to the source can still be run */
            !is_gone(me) && has_table[me] && table[me] >= MIGRATING && !handed_over ->
            assert(nothing_at_source);
            handed_over = 1;
#ifdef WITNESS
            assert(!fenced[1 - me] || !registered[1 - me]) /* it is not only reached when nothing has happened */
#endif
        }
    :: atomic { sent[me] -> execute(sent[me]) }
    :: atomic { connection[me] != DOWN && !left[instance(me)] -> lose(me) }
    :: atomic { not_ended[me] -> end_lost(me) }

    /* Lives. */
    :: atomic { /* it crashes; the process that takes its place knows nothing of what this one has sent */
            !is_gone(me) && registered[me] && !left[instance(me)] ->
            lose(me);
            not_ended[me] = 0;
            renamed[me] = 0;
            registered[me] = 0;
            has_table[me] = 0;
            table[me] = AT_SOURCE;
            newer[me] = 0;
            kept[me] = 0;
            given_up[me] = 0;
            life[me]++
        }
    :: atomic { /* it finds itself fenced: under a new name it registers, and takes the table that comes with it */
            life[me] < lives(me) - 1 && fenced[instance(me)] && some_topom && !left[instance(me)] ->
            lose(me);
            life[me]++;
            renamed[me] = 1;
            register(me);
            take(me, stored)
        }
    od
}

/* -- the source --------------------------------------------------------------------------------------------------- */

inline end_connections(one) {
    left[one] = 0;
    if
    :: life[(one) & 1] == (one) >> 1 && (connection[(one) & 1] == NAMED || connection[(one) & 1] == READY) ->
        connection[(one) & 1] = DOWN;
        sent[(one) & 1] = 0
    :: else
    fi
}

#ifdef FENCE_WITHOUT_USER
#define fence_comes_up(one) skip
#else
#define fence_comes_up(one) fence[one] = 1
#endif
#ifdef FENCE_ENDS_NOTHING
#define fence_ends(one) skip
#else
#define fence_ends(one) end_connections(one)
#endif

/* What was left behind is run at any later time. A fence is two steps: the user, then the ending of connections. */
#define AT_SOURCE_OF(one) \
    :: atomic { left[one] -> execute(left[one]) } \
    :: atomic { fenced[one] && !fencing[one] -> fencing[one] = 1; fence_comes_up(one) } \
    :: atomic { fencing[one] && !cut_off[one] -> fence_ends(one); cut_off[one] = 1 }

active proctype Source() {
end:
    do
    AT_SOURCE_OF(0)
    AT_SOURCE_OF(1)
#if LIVES > 1
    AT_SOURCE_OF(2)
    AT_SOURCE_OF(3)
#endif
    od
}

/* -- topom -------------------------------------------------------------------------------------------------------- */

#ifdef NO_FENCE
#define is_cut_off(one) true
#else
#define is_cut_off(one) (!fenced[one] || cut_off[one])
#endif
#define is_past(one) ((!member[one] || acknowledged[one]) && is_cut_off(one))
#if LIVES > 1
#define everyone_is_past (is_past(0) && is_past(1) && is_past(2) && is_past(3))
#else
#define everyone_is_past (is_past(0) && is_past(1))
#endif

/* A proxy that has not acknowledged is taken for lost: it is a member no more, and will be fenced. */
#define LEASE_ENDS(one) \
    :: atomic { member[one] && writes_newest && !acknowledged[one] -> member[one] = 0; fenced[one] = 1 }

#ifdef NO_COMPARE_AND_SWAP
/* A topom may have lost its place, and what it writes has an epoch that others have used. */
#define TOPOMS 2
#define LOOK_THEN_STORE
#define may_write begun
#define writes_newest current[me]
#define looks_again (!current[me] || everyone_is_past)
#else
/* epochs: a write counts only if nobody has written since what it was made from was read. So whoever pauses or dies and
 * has a successor can write no more, and one process stands for all that come one after the other. */
#define TOPOMS 1
#define may_write true
#define writes_newest true
#define looks_again true
#define mine stored
#endif

inline hears_of(proxy, what) {
    if
    :: registered[proxy] && (writes_newest || newer[proxy]) -> newer[proxy] = newer[proxy] | (1 << what)
    :: else /* whoever has the newest table refuses one of an older topom */
    fi
}

inline store(what) {
    hears_of(0, what);
    hears_of(1, what);
    stored = what;
    acknowledged[0] = 0;
    acknowledged[1] = 0;
#if LIVES > 1
    acknowledged[2] = 0;
    acknowledged[3] = 0;
#endif
#ifdef LOOK_THEN_STORE
    passed = 0;
#endif
#ifdef NO_COMPARE_AND_SWAP
    mine = what;
    current[1 - me] = 0;
#endif
}

active [TOPOMS] proctype Topom() {
#ifdef LOOK_THEN_STORE
    bit passed; /* the barrier has let it through, some time ago */
#endif
#ifdef NO_COMPARE_AND_SWAP
    byte me = _pid - 3;
    byte mine; /* the table as it knows it */
    bit begun;
#endif
end:
    do
    :: atomic { /* it starts, in the place of another one: it unlocks what is locked, and in any case there is a new
                   epoch */
#ifdef NO_COMPARE_AND_SWAP
            !current[me] ->
            begun = 1;
            current[me] = 1;
#endif
            if
            :: stored == PREPARED -> store(AT_SOURCE)
            :: stored != PREPARED -> store(stored)
            fi
        }
    :: atomic { mine == AT_SOURCE && may_write -> store(PREPARED) }
    :: atomic { mine == PREPARED && may_write -> store(AT_SOURCE) } /* refused, or not acknowledged in time */
#ifdef LOOK_THEN_STORE
    :: atomic { mine == PREPARED && !passed && writes_newest && everyone_is_past -> passed = 1 }
    :: atomic { mine == PREPARED && passed && may_write && looks_again -> store(MIGRATING) }
#else
    :: atomic { /* drained: everybody has acknowledged or is fenced, also those who came last */
            mine == PREPARED && everyone_is_past -> store(MIGRATING)
        }
#endif
    :: atomic { mine == MIGRATING && may_write -> store(FINISHED) }
    LEASE_ENDS(0)
    LEASE_ENDS(1)
#if LIVES > 1
    LEASE_ENDS(2)
    LEASE_ENDS(3)
#endif
    od
}
