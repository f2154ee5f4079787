/* Moving a key: take at the source, place at the target, drop at the source, by permits (docs/moving-keys.md).
 *
 * One key, two servers, two movers. Mover 0 is a proxy: it runs commands at the target once it knows that the key is
 * absent from the source, and deletes at the source of a full target. Mover 1 is the migrator: it finds that the source is
 * empty, and may move the key in pieces. It takes from barrier.pml that nobody runs commands by an older table.
 *
 * A copy is FRESH when it is what the last acknowledged command left, else STALE; a write makes all other copies STALE.
 * So there is any number of writes and no counter. A permit is a number that nobody else has: one that nobody knows any
 * more is given out again. So there is any number of renewals. README.md says what is left out and why that is sound.
 *
 * Parts: FULL (the target may be full), PIECES, EVICTS (keys), HASH_LOST, FLUSHES=n, RESTARTS=n (with the data of now or
 * of any earlier time), REPLACED (a server hangs, its replica takes over, and it is made the master again later),
 * TURNS (the slot is turned round), JOURNEYS=n, SOURCE_LEFT (a source that does not answer in the end keeps its permit
 * until the next action begins). -DFAULTS=n: at most n connections are lost, else any number.
 */

#ifndef JOURNEYS
#define JOURNEYS 1
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef FLUSHES
#define FLUSHES 0
#endif
byte journeys = JOURNEYS;
#ifdef FAULTS
byte faults_left = FAULTS;
#define FAULT (faults_left > 0)
#define strike faults_left--
#else
#define FAULT true
#define strike skip
#endif

/* Variants in which what stands nowhere any more does something. */
#if defined(PERMIT_NOT_LOOKED_AT_BY_PLACE) || defined(NO_CAS) || defined(DELETE_WITHOUT_PERMIT)
#define USES_THE_DEAD
#endif

/* -- the key ------------------------------------------------------------------------------------------------------ */

#define NONE 0
#define STALE 1
#define FRESH 2
byte copy[2]; /* by server */
byte payload[2]; /* by mover: what it has taken */
byte sent[2]; /* by mover: the same, in a step that lies in a socket */

#define ABSENT 0
#define THERE 1
#define EVICTED 2 /* at the source; a fresh copy elsewhere is no harm until somebody has looked */
#define ANY 3 /* a source has brought back what was deleted, as a single Redis does */
byte truth;

/* -- the slot ----------------------------------------------------------------------------------------------------- */

#define MIGRATING 0
#define LOCKED 1 /* to be turned round: no commands */
#define FINISHED 2
#define REST 3
byte state = REST;
bit from; /* who gives keys; at rest, the owner */
#define to (1 - from)
bit back; /* it was turned round */
bit scanned; /* the migrator has found nothing at the source */
byte withdrawing; /* the barrier has passed, and so many steps of the withdrawal are done, plus 1 */

/* -- servers: what is in the hash __slotferry:moving, and who they are ------------------------------------------------ */

/* A permit has a random number, and the run ids of source and target. One without run ids is good for nothing. */
#define permit_of(random, source, target) ((random) * 16 + (source) * 4 + (target))
#define random_of(permit) ((permit) >> 4)
#define source_in(permit) (((permit) >> 2) & 3)
#define target_in(permit) ((permit) & 3)

/* Whatever is a permit: at servers, in files, at movers, in sockets. */
byte permits[18];
#define permit(which) permits[0 + (which)]
#define accepts(which) permits[2 + (which)]
#define saved_permit(which) permits[4 + (which)]
#define saved_accepts(which) permits[6 + (which)]
#define held(which) permits[8 + (which)]
#define seen_source(which) permits[10 + (which)]
#define seen_target(which) permits[12 + (which)]
#define stray_permit(which) permits[14 + (which)]
#define stray_seen(which) permits[16 + (which)]
#define NOBODY 0
#define IN_PIECES 3 /* mover 1's; those that go whole are 1 + mover's */
byte claim[2];
byte run_id[2] = 1;
byte newest_run[2] = 1;
byte begun[2] = 1; /* run ids as the action began; 0 if the group has had another master since */
bit older[2]; /* it has come back with older data since the action began */
bit flushing[2]; /* the field of a flush stands */

/* What the file of a server has, or a process of it that hangs. */
byte saved_copy[2];
byte saved_claim[2];
byte saved_run[2];
byte restarts_left = RESTARTS;

#ifdef NO_RUN_ID_IN_PERMIT
#define names_source(p, s) true
#define names_target(p, t) true
#else
#define names_source(p, s) (source_in(p) == run_id[s])
#define names_target(p, t) (target_in(p) == run_id[t])
#endif
#define holds_at_source(p, s) ((p) != 0 && permit(s) == (p) && names_source(p, s))
#define holds_at_target(p, t) ((p) != 0 && accepts(t) == (p) && names_target(p, t))

/* -- movers ------------------------------------------------------------------------------------------------------- */

#define IDLE 0
#define LOOKS 1 /* has to renew the permit, and has not looked yet */
#define RENEWS 2 /* ... the first of the two */
#define RENEWS_SECOND 3
#define CHECKS 4 /* goes in pieces: looks at its claim by the new permit */
#define TAKEN 5
#define PLACED 6
#define REFUSED 7 /* nothing was placed */
#define ASKED 8 /* the target was asked whether it has the key, for a delete at the source */
byte step[2];
bit mine[2]; /* it has not passed the barrier at which its action ends */
bit source_of[2];
#define target_of(me) (1 - source_of[me])
bit knows_absent;
bit has_copy; /* what the target said */
byte resumes; /* where mover 1 goes on with its pieces: TAKEN, PLACED or nowhere; and by which target's permit it placed */
byte placed_at;

/* A step in the socket of a connection that its mover has lost, one for each mover. */
#define NO_STEP 0
#define TAKE 1
#define PLACE 2
#define DROP 3
#define RELEASE 4
#define DELETE 5
#define RENEW_TARGET 6
#define RENEW_SOURCE 7
byte stray[2];
bit stray_source[2];
bit stray_flag[2]; /* place: the target's copy counts; delete: the target has a copy; drop: pieces */

/* -- a flush ------------------------------------------------------------------------------------------------------ */

byte flushes_left = FLUSHES;
byte flush_step;
bit flushed[2];
bit flush_failed;
byte flush_run[2];
bit survives; /* what there was as it began is there still */
bit flush_moment; /* the key's moment is over */

/* -- numbers ------------------------------------------------------------------------------------------------------ */

#define WAS_ONCE 255 /* seen, and stands there no more */
#define PERMITS 18
hidden byte each;
hidden byte number;
hidden byte numbers[16];

inline forget_stray(me) {
    stray[me] = NO_STEP;
    stray_permit(me) = 0;
    stray_seen(me) = 0;
    stray_source[me] = 0;
    stray_flag[me] = 0;
    sent[me] = NONE
}

#define is_live(place) \
    (permits[place] && permits[place] != WAS_ONCE && ((place) < 8 || \
     ((place) / 2 == 4 && (step[(place) % 2] == RENEWS || step[(place) % 2] == RENEWS_SECOND)) || \
     ((place) / 2 == 7 && stray[(place) % 2] >= RENEW_TARGET)))

/* A permit that stands nowhere and that nobody will put anywhere is as good as none; the others are numbered anew. */
inline tidy() {
    d_step {
        number = 0;
        each = 0;
        do
        :: each < PERMITS ->
            if
            :: is_live(each) && numbers[random_of(permits[each])] == 0 -> number++; numbers[random_of(permits[each])] = number
            :: else
            fi;
            each++
        :: else -> break
        od;
        each = 0;
        do
        :: each < PERMITS ->
            if
            :: permits[each] == 0 || permits[each] == WAS_ONCE
            :: else ->
                if
                :: numbers[random_of(permits[each])] ->
                    permits[each] = numbers[random_of(permits[each])] * 16 + permits[each] % 16
#ifndef USES_THE_DEAD
                :: else -> permits[each] = (each / 2 == 5 || each / 2 == 6 || each / 2 == 8 -> WAS_ONCE : 0)
#else
                :: else -> number++; numbers[random_of(permits[each])] = number; permits[each] = number * 16 + permits[each] % 16
#endif
                fi
            fi;
            each++
        :: else -> break
        od;
#ifndef USES_THE_DEAD
        each = 0;
        do
        :: each < 2 ->
            if
            :: stray[each] && (stray_permit(each) == 0 || stray_seen(each) == WAS_ONCE) -> forget_stray(each)
            :: else
            fi;
            each++
        :: else -> break
        od;
#endif
        each = 0;
        do
        :: each < 16 -> numbers[each] = 0; each++
        :: else -> break
        od;
        each = 0;
        number = 0
    }
}

inline fresh(p, source, target) {
    d_step {
        each = 0;
        number = 0;
        do
        :: each < PERMITS ->
            if
            :: permits[each] != WAS_ONCE && random_of(permits[each]) > number -> number = random_of(permits[each])
            :: else
            fi;
            each++
        :: else -> break
        od;
        number++;
        assert(number < 15);
        p = permit_of(number, source, target);
        each = 0;
        number = 0
    }
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

#define AGE(where) \
    if \
    :: where == FRESH -> where = STALE \
    :: else \
    fi

inline outdate() {
    AGE(copy[0]);
    AGE(copy[1]);
    AGE(payload[0]);
    AGE(payload[1]);
    AGE(sent[0]);
    AGE(sent[1]);
    AGE(saved_copy[0]);
    AGE(saved_copy[1])
}

/* no-loss: what a command finds is what the last acknowledged one has left. */
inline look(server) {
    assert(truth != THERE || copy[server] == FRESH);
    assert(truth != ABSENT || copy[server] == NONE);
    assert(truth != EVICTED || copy[server] != STALE);
    if
    :: truth == EVICTED && copy[server] == NONE -> outdate(); truth = ABSENT
    :: truth == EVICTED && copy[server] == FRESH -> truth = THERE
    :: else
    fi
}

inline write(server) {
    look(server);
    outdate();
    copy[server] = FRESH;
    truth = THERE;
    survives = 0
}

inline delete(server) {
    look(server);
    outdate();
    copy[server] = NONE;
    truth = ABSENT;
    survives = 0
}

inline absent_first() {
    /* absent-first */
    assert(copy[from] == NONE || older[from])
}

/* A source that has older keys back once `finished` is stored, and a mover that has not heard of it: see README.md. */
#ifdef OLDER_AFTER_FINISHED
#define has_back(server) false
#else
#define has_back(server) (older[server] && copy[server] != NONE)
#endif

#define is_on_its_way (payload[0] != NONE || payload[1] != NONE || sent[0] != NONE || sent[1] != NONE)

/* What there is at a server after its own loss is what there is. */
inline own_loss(server) {
    if
    :: truth == ANY
    :: truth != ANY && is_on_its_way -> outdate(); truth = ANY; survives = 0 /* it may come where it goes to, or not */
    :: truth != ANY && !is_on_its_way && copy[server] == NONE -> outdate(); truth = ABSENT; survives = 0
    :: truth != ANY && !is_on_its_way && copy[server] != NONE -> outdate(); copy[server] = FRESH; truth = THERE; survives = 0
    fi
}

/* -- the steps, as servers run them: p the permit, s the source, by the claim's value --------------------------------- */

#ifdef PERMIT_NOT_LOOKED_AT_BY_PLACE
#define may_place(p, t) true
#else
#define may_place(p, t) holds_at_target(p, t)
#endif
#ifdef CLAIM_NOT_CHECKED_BY_DROP
#define may_drop(s, by) true
#else
#define may_drop(s, by) (claim[s] == (by))
#endif

inline run_place(t, what, keeps) {
    if
    :: copy[t] != NONE && keeps
    :: else -> copy[t] = what
    fi
}

inline run_drop(p, s, by) {
    if
    :: may_drop(s, by) ->
        copy[s] = NONE;
        claim[s] = NOBODY;
        /* What the target has lost by its own restart since the key was placed there, it loses as any other write. */
        if
        :: s == from && older[to] && target_in(p) != run_id[to] && truth != ABSENT -> own_loss(to)
        :: else
        fi
    :: else
    fi
}

/* fulltargets.py: a target that is another process by then shows in the second look, and the client has an error. What
   that process has brought back is what there is. */
#ifdef DELETE_NOT_LOOKED_AT_AGAIN
#define is_acknowledged(p, t) true
#else
#define is_acknowledged(p, t) names_target(p, t)
#endif

inline run_delete(p, s, copied) {
    if
    :: copy[s] != NONE && !copied ->
        if
        :: is_acknowledged(p, 1 - s) || !older[1 - s] -> delete(s)
        :: else -> look(s); copy[s] = NONE; own_loss(1 - s)
        fi
    :: else
    fi
}
#ifdef DELETE_WITHOUT_PERMIT
#define may_delete(p, s) true
#else
#define may_delete(p, s) holds_at_source(p, s)
#endif
#ifdef DELETE_CLAIMED
#define is_free(s) true
#else
#define is_free(s) (claim[s] == NOBODY)
#endif

#ifdef NO_CAS
#define unchanged(now, before) true
#else
#define unchanged(now, before) ((now) == (before))
#endif
#define may_renew_target(p, t, before) (unchanged(accepts(t), before) && names_target(p, t) && !flushing[t])
#define may_renew_source(p, s, before) (unchanged(permit(s), before) && names_source(p, s) && !flushing[s])

inline run_renew_source(s, p, all) {
    permit(s) = p;
    if
    :: claim[s] == IN_PIECES && !(all)
    :: else -> claim[s] = NOBODY
    fi
}

/* beginning.py: of a key on both servers, the copy of the one that takes counts. */
#ifdef SOURCE_ALWAYS_COUNTS
#define keeps_target(p) false
#else
#define keeps_target(p) (source_in(p) != begun[from] && (!back || target_in(p) == begun[to]))
#endif

/* -- movers ------------------------------------------------------------------------------------------------------- */

inline doubt(me) {
    step[me] = LOOKS;
    payload[me] = (resumes && me == 1 -> payload[me] : NONE);
    has_copy = (me == 0 -> 0 : has_copy);
    seen_source(me) = 0;
    seen_target(me) = 0;
    tidy()
}

/* A step of this kind lies in a socket, and its mover does not know what becomes of it. */
inline lose(me, kind, flag) {
    strike;
    stray[me] = kind;
    stray_permit(me) = held(me);
    stray_source[me] = source_of[me];
    stray_flag[me] = flag;
    sent[me] = (kind == PLACE -> payload[me] : NONE);
    stray_seen(me) = (kind == RENEW_TARGET -> seen_target(me) : (kind == RENEW_SOURCE -> seen_source(me) : 0))
}
#define may_lose(me) (FAULT && stray[me] == NO_STEP)

inline to_idle(me) {
    step[me] = IDLE;
    payload[me] = NONE;
    seen_source(me) = 0;
    seen_target(me) = 0;
    if
    :: me == 1 -> resumes = IDLE; placed_at = 0
    :: else
    fi
}

inline dropped(me) {
    to_idle(me);
    if
    :: me == 0 && mine[0] -> knows_absent = 1
    :: else
    fi
}

#define claim_of(me) (me == 1 && resumes -> IN_PIECES : me + 1)
#define S source_of[me]
#define T target_of(me)
#define P held(me)

#ifdef BELIEVES_SOURCE /* what stands there the target has accepted before */
#define may_believe(p, t) true
#else
#define may_believe(p, t) holds_at_target(p, t)
#endif
#ifdef RENEWS_AFTER_BARRIER
#define goes_on(me) true
#else
#define goes_on(me) mine[me]
#endif
#ifdef COMPLETE_WITHOUT_PERMIT
#define finds_nothing (copy[S] == NONE)
#else
#define finds_nothing (holds_at_source(P, S) && copy[S] == NONE && claim[S] == NOBODY)
#endif
#ifdef CLAIMED_IS_ABSENT
#define is_absent (copy[S] == NONE)
#else
#define is_absent (copy[S] == NONE && claim[S] == NOBODY)
#endif
#ifdef ABSENT_WITHOUT_PERMIT
#define may_learn true
#else
#define may_learn holds_at_source(P, S)
#endif

active [2] proctype Mover() {
    byte me = _pid;
end:
    do
    :: atomic { state == MIGRATING && step[me] == IDLE && !mine[me] -> /* it hears of the action, and knows nothing */
            mine[me] = 1;
            S = from;
            P = 0;
            if
            :: me == 0 -> knows_absent = 0
            :: else
            fi
        }

    /* The permit. */
    :: atomic { step[me] == IDLE && mine[me] && !P -> doubt(me) }
    :: atomic { step[me] == IDLE && mine[me] && P && FAULT -> strike; doubt(me) } /* whatever the reason */
    :: atomic { step[me] == IDLE && mine[me] && P && !holds_at_source(P, S) -> doubt(me) } /* NOTPERMITTED */
    :: atomic { step[me] == LOOKS && !goes_on(me) -> to_idle(me); P = 0 }
    :: atomic { step[me] == LOOKS && goes_on(me) && !flushing[0] && !flushing[1] ->
            if
            :: holds_at_source(permit(S), S) && may_believe(permit(S), T) && permit(S) != P ->
                P = permit(S);
                step[me] = (me == 1 && resumes -> CHECKS : IDLE)
            :: else ->
#ifndef NONE_IS_A_VALUE
                if
                :: permit(S) == 0 -> fresh(permit(S), 0, 0)
                :: else
                fi;
                if
                :: accepts(T) == 0 -> fresh(accepts(T), 0, 0)
                :: else
                fi;
#endif
                seen_target(me) = accepts(T);
                seen_source(me) = permit(S);
                P = 0;
                fresh(P, run_id[S], run_id[T]);
                step[me] = RENEWS
            fi;
            tidy()
        }
#ifdef RENEWED_AT_SOURCE_FIRST
#define FIRST RENEWS_SECOND
#define SECOND RENEWS
#define after_target (me == 1 && resumes -> CHECKS : IDLE)
#define after_source RENEWS_SECOND
#else
#define FIRST RENEWS
#define SECOND RENEWS_SECOND
#define after_target RENEWS_SECOND
#define after_source (me == 1 && resumes -> CHECKS : IDLE)
#endif
    :: atomic { step[me] == FIRST ->
            if
            :: may_renew_target(P, T, seen_target(me)) -> accepts(T) = P; seen_target(me) = 0; step[me] = after_target;
#ifdef SOURCE_LOOKED_AT_LATE
                seen_source(me) = 255
#endif
            :: else -> P = 0; doubt(me)
            fi;
            tidy()
        }
#ifdef SOURCE_LOOKED_AT_LATE
    :: atomic { step[me] == SECOND && seen_source(me) == 255 -> seen_source(me) = permit(S) }
#endif
    :: atomic { step[me] == FIRST && may_lose(me) -> lose(me, RENEW_TARGET, 0); P = 0; doubt(me) }
    :: atomic { step[me] == SECOND && seen_source(me) != 255 ->
            if
            :: may_renew_source(P, S, seen_source(me)) ->
#ifdef PIECES
                if
                :: run_renew_source(S, P, me == 0) /* mover 0 is another migrator for once */
                :: run_renew_source(S, P, false)
                fi;
#else
                run_renew_source(S, P, false);
#endif
                seen_source(me) = 0;
                step[me] = after_source
            :: else -> P = 0; doubt(me)
            fi;
            tidy()
        }
    :: atomic { step[me] == SECOND && may_lose(me) -> lose(me, RENEW_SOURCE, 0); doubt(me) }

    /* Take. */
    :: atomic { step[me] == IDLE && P && holds_at_source(P, S) && copy[S] != NONE && claim[S] == NOBODY ->
            payload[me] = copy[S];
            claim[S] = me + 1;
            step[me] = TAKEN;
#ifdef PIECES
            if
            :: me == 1 -> claim[S] = IN_PIECES; resumes = TAKEN
            :: true
            fi
#endif
        }
    :: atomic { step[me] == IDLE && P && may_lose(me) -> lose(me, TAKE, 0); doubt(me) }
    :: atomic { me == 0 && step[0] == IDLE && P && mine[0] && !knows_absent && may_learn && is_absent -> knows_absent = 1 }
    :: atomic { me == 1 && step[1] == IDLE && P && mine[1] && state == MIGRATING && !scanned && finds_nothing -> scanned = 1 }

    /* Place. */
    :: atomic { step[me] == TAKEN ->
            if
            :: may_place(P, T) -> run_place(T, payload[me], keeps_target(P));
                step[me] = PLACED;
                if
                :: me == 1 && resumes -> resumes = PLACED; placed_at = target_in(P)
                :: else -> payload[me] = NONE
                fi
            :: !may_place(P, T) -> doubt(me)
#ifdef FULL
            :: may_place(P, T) -> step[me] = REFUSED; payload[me] = (me == 1 && resumes -> payload[me] : NONE)
#endif
            fi
        }
    :: atomic { step[me] == TAKEN && may_lose(me) ->
            lose(me, PLACE, keeps_target(P));
#ifdef CLAIM_GIVEN_BACK_AFTER_PLACE_WITHOUT_RENEWAL
            step[me] = REFUSED;
            payload[me] = NONE
#else
            doubt(me)
#endif
        }

    /* Drop, or give the claim back where nothing was placed. */
    :: atomic { step[me] == PLACED ->
            if
            :: holds_at_source(P, S) && may_drop(S, claim_of(me)) -> run_drop(P, S, claim_of(me)); dropped(me)
            :: holds_at_source(P, S) && !may_drop(S, claim_of(me)) -> to_idle(me)
            :: !holds_at_source(P, S) -> doubt(me)
            fi
        }
    :: atomic { step[me] == PLACED && may_lose(me) -> lose(me, DROP, (me == 1 && resumes)); doubt(me) }
    :: atomic { step[me] == REFUSED ->
            if
            :: holds_at_source(P, S) ->
                if
                :: claim[S] == claim_of(me) -> claim[S] = NOBODY
                :: else
                fi;
                to_idle(me)
            :: else -> doubt(me)
            fi
        }
    :: atomic { step[me] == REFUSED && may_lose(me) -> lose(me, RELEASE, (me == 1 && resumes)); doubt(me) }

#ifdef PIECES
    /* In pieces: the copy was made under a permit of before, and goes on if the claim was held all the time. */
    :: atomic { me == 1 && step[1] == CHECKS ->
            if
#ifdef PIECES_CLAIM_NOT_LOOKED_AT
            :: true ->
#else
            :: !holds_at_source(P, S) -> doubt(me)
            :: holds_at_source(P, S) && claim[S] != IN_PIECES -> to_idle(1)
            :: holds_at_source(P, S) && claim[S] == IN_PIECES ->
#endif
                step[1] = TAKEN;
                resumes = TAKEN;
                placed_at = 0
            fi
        }
    :: atomic { me == 1 && step[1] == CHECKS && resumes == PLACED -> /* drop looks at the claim itself */
#ifdef DROP_AFTER_TARGET_RESTARTED
            step[1] = PLACED
#else
            if
            :: target_in(P) == placed_at -> step[1] = PLACED
            :: else -> resumes = TAKEN
            fi
#endif
        }
#endif

    /* Commands of the proxy. */
    :: atomic { me == 0 && mine[0] && state == MIGRATING && knows_absent -> absent_first(); write(to) }
    :: atomic { me == 0 && mine[0] && state == MIGRATING && knows_absent && copy[S] == NONE && claim[S] == NOBODY ->
            absent_first(); delete(to)
        }
#ifdef NO_ABSENT_FIRST
    :: atomic { me == 0 && mine[0] && state == MIGRATING -> absent_first(); write(to) }
#endif
#ifdef FULL
    :: atomic { me == 0 && step[0] == IDLE && P && mine[0] && state == MIGRATING && !names_target(P, T) -> doubt(me) }
    :: atomic { me == 0 && step[0] == IDLE && P && mine[0] && state == MIGRATING && names_target(P, T) && !keeps_target(P) ->
            has_copy = (copy[T] != NONE);
#ifdef DELETE_WITHOUT_LOOK
            has_copy = 0;
#endif
            step[0] = ASKED
        }
    :: atomic { me == 0 && step[0] == ASKED ->
            if
            :: may_delete(P, S) && is_free(S) -> run_delete(P, S, has_copy); has_copy = 0; step[0] = IDLE
            :: may_delete(P, S) && !is_free(S) -> has_copy = 0; step[0] = IDLE
            :: !may_delete(P, S) -> doubt(me)
            fi
        }
    :: atomic { me == 0 && step[0] == ASKED && may_lose(0) -> lose(me, DELETE, has_copy); doubt(me) }
#endif

    /* What lies in the socket is run, or never. */
    :: atomic { stray[me] != NO_STEP -> forget_stray(me); tidy() }
    :: atomic { stray[me] != NO_STEP ->
            if
            :: stray[me] == TAKE && holds_at_source(stray_permit(me), stray_source[me]) &&
                copy[stray_source[me]] != NONE && claim[stray_source[me]] == NOBODY -> claim[stray_source[me]] = me + 1
            :: stray[me] == PLACE && may_place(stray_permit(me), 1 - stray_source[me]) ->
                run_place(1 - stray_source[me], sent[me], stray_flag[me])
            :: stray[me] == DROP && holds_at_source(stray_permit(me), stray_source[me]) ->
                run_drop(stray_permit(me), stray_source[me], (stray_flag[me] -> IN_PIECES : me + 1))
            :: stray[me] == RELEASE && holds_at_source(stray_permit(me), stray_source[me]) &&
                claim[stray_source[me]] == (stray_flag[me] -> IN_PIECES : me + 1) -> claim[stray_source[me]] = NOBODY
            :: stray[me] == DELETE && may_delete(stray_permit(me), stray_source[me]) && is_free(stray_source[me]) ->
                run_delete(stray_permit(me), stray_source[me], stray_flag[me])
            :: stray[me] == RENEW_TARGET && may_renew_target(stray_permit(me), 1 - stray_source[me], stray_seen(me)) ->
                accepts(1 - stray_source[me]) = stray_permit(me)
            :: stray[me] == RENEW_SOURCE && may_renew_source(stray_permit(me), stray_source[me], stray_seen(me)) ->
                run_renew_source(stray_source[me], stray_permit(me), false)
            :: else
            fi;
            forget_stray(me);
            tidy()
        }
    od
}

/* -- topom -------------------------------------------------------------------------------------------------------- */

inline withdraw_target() {
#ifndef NOT_WITHDRAWN_AT_END
    accepts(to) = 0;
#endif
    withdrawing = 2
}

inline withdraw_source() {
#ifndef NOT_WITHDRAWN_AT_END
    if
#ifdef SOURCE_LEFT
    :: state == FINISHED
#endif
    :: permit(from) = 0;
        claim[from] = NOBODY
    fi;
#endif
    withdrawing = 0
}

inline barrier() {
    mine[0] = 0;
    mine[1] = 0;
    withdrawing = 1
}

active proctype Topom() {
end:
    do
    :: atomic { state == MIGRATING && scanned && !has_back(from) ->
            /* complete */
            assert(copy[from] == NONE || older[from]);
            scanned = 0;
            state = FINISHED
        }
    :: atomic { state == FINISHED && !withdrawing -> write(to) } /* clients; by any proxy */
    :: atomic { state == FINISHED && !withdrawing -> delete(to) }
    :: atomic { state == REST -> write(from) }
    :: atomic { state == REST -> delete(from) }
    :: atomic { state == FINISHED && !withdrawing -> barrier() } /* everybody has heard */
#ifdef TURNS
    :: atomic { state == MIGRATING && !back -> state = LOCKED; scanned = 0 }
#ifdef WITHDRAWN_BEFORE_BARRIER
    :: atomic { state == LOCKED && !withdrawing -> withdrawing = 1 }
#else
    :: atomic { state == LOCKED && !withdrawing -> barrier() }
#endif
#endif
    :: atomic { withdrawing == 1 -> withdraw_target(); tidy() }
    :: atomic { withdrawing == 2 ->
            withdraw_source();
            scanned = 0;
            if
            :: state == LOCKED -> mine[0] = 0; mine[1] = 0; from = to; back = 1; state = MIGRATING
            :: state == FINISHED -> from = to; back = 0; state = REST;
#ifdef WITNESS_END
                assert(false)
#endif
            fi;
            tidy()
        }
    :: atomic { state == REST && journeys > 0 ->
            /* owned: it is swept */
            copy[to] = NONE;
#if defined(SOURCE_LEFT) && !defined(LEFT_FOR_EVER)
            /* one-way: and its permit is withdrawn, if that could not be done when its slots left it */
            permit(to) = 0;
            claim[to] = NOBODY;
#endif
            begun[0] = run_id[0];
            begun[1] = run_id[1];
            older[0] = 0;
            older[1] = 0;
            journeys--;
            state = MIGRATING
        }
    od
}

/* -- faults of servers ---------------------------------------------------------------------------------------------- */

#define moves (state == MIGRATING || state == LOCKED)
#define home ((moves && copy[from] == NONE) || state == FINISHED -> to : from)

inline comes_back_older(s) {
    older[s] = (state != REST);
    if
    :: s == home ->
        copy[s] = saved_copy[s];
        if
        :: moves && (copy[0] == FRESH || copy[1] == FRESH)
        :: else -> own_loss(s)
        fi
    :: else ->
        copy[s] = saved_copy[s];
        if
        :: moves && s == from && (truth == ABSENT || truth == EVICTED) && copy[s] != NONE -> truth = ANY
        :: else
        fi
    fi
}

inline hash_of_before(s) {
    permit(s) = saved_permit(s);
    accepts(s) = saved_accepts(s);
    claim[s] = saved_claim[s]
}

inline forget_saved(s) {
    saved_copy[s] = NONE;
    saved_permit(s) = 0;
    saved_accepts(s) = 0;
    saved_claim[s] = NOBODY;
    saved_run[s] = 0
}

inline save(s) {
    saved_copy[s] = copy[s];
    saved_permit(s) = permit(s);
    saved_accepts(s) = accepts(s);
    saved_claim[s] = claim[s];
    saved_run[s] = run_id[s]
}

inline withdraw_all(s) {
#ifndef NOT_WITHDRAWN_AT_PROMOTION
    permit(s) = 0;
    accepts(s) = 0
#else
    skip
#endif
}

#if RESTARTS > 0 || defined(REPLACED)
/* Where a server has come back with older data, the other one does not until the action is over. */
#ifdef OLDER_AFTER_FINISHED
#define may_be_older(s) (!older[1 - (s)])
#else
#define may_be_older(s) (!older[1 - (s)] && !(state == FINISHED && (s) == from))
#endif

active [2] proctype Server() {
    byte me = _pid - 3;
end:
    do
#if RESTARTS > 0
    :: atomic { restarts_left > 0 && (saved_copy[me] != copy[me] || saved_permit(me) != permit(me) ||
            saved_accepts(me) != accepts(me) || saved_claim[me] != claim[me]) -> save(me); saved_run[me] = 0 }
    :: atomic { restarts_left > 0 && may_be_older(me) ->
            restarts_left--;
            if
            :: true
            :: hash_of_before(me); comes_back_older(me)
            fi;
            newest_run[me]++;
            run_id[me] = newest_run[me];
            if
            :: restarts_left == 0 -> forget_saved(0); forget_saved(1)
            :: else
            fi;
            tidy()
        }
#endif
#ifdef REPLACED
    :: atomic { /* it hangs, and its replica is made the master */
            newest_run[0] == 1 && newest_run[1] == 1 ->
            save(me);
            newest_run[me] = 2;
            run_id[me] = 2;
            begun[me] = 0;
            withdraw_all(me);
            tidy()
        }
    :: atomic { /* and later it is again, with what it had */
            newest_run[me] == 2 && saved_run[me] == 1 && may_be_older(me) ->
            hash_of_before(me);
            comes_back_older(me);
            run_id[me] = 1;
            forget_saved(me);
            withdraw_all(me);
            tidy()
        }
#endif
    od
}
#endif

#if defined(EVICTS) || defined(HASH_LOST)
active proctype Losses() {
end:
    do
#ifdef EVICTS
    :: atomic { state == MIGRATING && copy[from] != NONE && truth == THERE && !older[from] -> copy[from] = NONE; truth = EVICTED }
#endif
#ifdef HASH_LOST
    :: atomic { moves && (permit(from) || claim[from]) -> permit(from) = 0; claim[from] = NOBODY; tidy() }
    :: atomic { moves && accepts(to) -> accepts(to) = 0; tidy() }
#endif
    od
}
#endif

/* -- a flush ------------------------------------------------------------------------------------------------------ */

#if FLUSHES > 0
inline withhold(s) {
#ifndef FLUSH_DOES_NOT_WITHHOLD
    permit(s) = 0;
    accepts(s) = 0;
    claim[s] = NOBODY;
    flushing[s] = 1;
#endif
    flush_run[s] = run_id[s];
    tidy()
}

inline flush(s) {
    flushed[s] = 1;
    if
#ifdef FLUSH_DOES_NOT_WITHHOLD
    :: true ->
#else
    :: flushing[s] && flush_run[s] == run_id[s] ->
#endif
        if
        :: s == home && !(copy[s] == NONE && truth != ABSENT && truth != ANY) ->
            /* flush: nothing is taken away that was written after its moment */
            assert(!flush_moment || truth != THERE);
            flush_moment = 1;
            survives = 0;
            copy[s] = NONE;
            outdate();
            truth = (flush_failed -> ANY : ABSENT)
        :: else ->
            /* Where the other server's field was taken away, the flush fails, and takes away what it finds. */
            if
            :: truth == THERE && copy[s] != NONE && s != home && !flushing[1 - s] -> truth = EVICTED
            :: else
            fi;
            copy[s] = NONE
        fi
    :: else -> flush_failed = 1
    fi
}

inline release(s) {
    if
#ifndef FLUSH_DOES_NOT_WITHHOLD
    :: !flushing[s] || flush_run[s] != run_id[s] -> flush_failed = 1
#endif
    :: else
    fi;
    flushing[s] = 0
}

/* It will be answered with an error: what it takes away may be there, or not. */
inline take_over(s) {
    flushing[s] = 0;
    flush_failed = 1;
    if
    :: flush_moment && truth == ABSENT -> truth = ANY
    :: else
    fi
}

active proctype Flusher() {
    bit first;
end:
    do
    :: atomic { flush_step == 0 && flushes_left > 0 && state == MIGRATING ->
            flushes_left--;
            survives = (truth == THERE);
            flush_step = 1;
            if
            :: first = 0
            :: first = 1
            fi
        }
    :: atomic { flush_step == 1 -> withhold(first); flush_step = 2 }
    :: atomic { flush_step == 2 -> withhold(1 - first); flush_step = 3 }
    :: atomic { flush_step == 3 && !flushed[0] -> flush(0) }
    :: atomic { flush_step == 3 && !flushed[1] -> flush(1) }
    :: atomic { flush_step == 3 && flushed[0] && flushed[1] -> release(0); flush_step = 4 }
    :: atomic { flush_step == 4 ->
            release(1);
            /* flush: it leaves nothing that was there */
            assert(flush_failed || !survives);
            flush_step = 0;
            flushed[0] = 0;
            flushed[1] = 0;
            flush_failed = 0;
            survives = 0;
            flush_moment = 0;
            flush_run[0] = 0;
            flush_run[1] = 0;
            first = 0
        }
    /* It stands for too long, and somebody who waits for it takes it away. */
    :: atomic { flush_step && flushing[to] -> take_over(to) }
    :: atomic { flush_step && flushing[from] -> take_over(from) }
    od
}
#endif
