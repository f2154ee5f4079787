/* Journeys: a key whose slot goes there and back between two servers, while proxies are fenced and return, servers
 * restart with marks or data of before, and moves are cancelled.
 *
 * It is the seam of barrier.pml and keys.pml: what each of them takes for granted of the other is here one search. It
 * shows that no acknowledged write is lost and none comes back (no-loss), by which one-owner, by-action, final-fence,
 * run-id and owned are upheld together. In exchange, single steps are coarse: a command is sent and run in one, and a key
 * is taken, placed and dropped in one, or taken and placed. README.md says what is left out and why that is sound.
 *
 * There are no numbers of epochs: of each proxy it is known whether its table is the newest one, and whether the action
 * in it is the one that is stored. So there may be any number of them.
 */

#ifndef JOURNEYS
#define JOURNEYS 2 /* actions that begin; each may be cancelled once */
#endif
#ifndef RETURNS
#define RETURNS 1 /* how often fenced proxies come back under a new identity, in all */
#endif
#ifndef MAY_BE_LOST
#define MAY_BE_LOST 1 /* proxies that may be cut off from topom, or pause */
#endif
#ifndef RESTARTS
#define RESTARTS 2 /* of servers, in all */
#endif
byte journeys = JOURNEYS;
byte returns_left = RETURNS;
byte restarts_left = RESTARTS;

/* -- the key ------------------------------------------------------------------------------------------------------ */

#define NONE 0
#define STALE 1 /* not what the last acknowledged command left */
#define FRESH 2
byte copy[2]; /* by server */
byte saved[2]; /* by server: what its RDB file has */

#define ABSENT 0
#define THERE 1
#define ANY 2 /* a source has brought back what was deleted, as a single Redis does */
byte truth;

inline outdate() {
    if
    :: copy[0] == FRESH -> copy[0] = STALE
    :: else
    fi;
    if
    :: copy[1] == FRESH -> copy[1] = STALE
    :: else
    fi;
    if
    :: saved[0] == FRESH -> saved[0] = STALE
    :: else
    fi;
    if
    :: saved[1] == FRESH -> saved[1] = STALE
    :: else
    fi
}

inline look(server) {
    /* no-loss */
    assert(truth != THERE || copy[server] == FRESH);
    assert(truth != ABSENT || copy[server] == NONE)
}

inline delete(server) {
    look(server);
    outdate();
    copy[server] = NONE;
    truth = ABSENT
}

inline read_or_write(server) {
    look(server);
    if
    :: true
    :: true -> outdate(); copy[server] = FRESH; truth = THERE
    fi
}

inline perform(server) {
    if
    :: read_or_write(server)
    :: delete(server)
    fi
}

/* -- the slot, as stored ------------------------------------------------------------------------------------------ */

#define REST 0
#define LOCKED 1
#define MIGRATING 2
#define FINISHED 3
byte stored; /* the state */
bit from; /* the source; the owner, at rest */
#define to (1 - from)
bit back; /* it was cancelled, and turned round */
bit turning; /* it is locked to be turned round */
bit intact[2]; /* by server: it is the process that it was when the action began, by the run id stored with that */
bit older[2]; /* by server: it has restarted with older data since the action began */

/* -- servers ------------------------------------------------------------------------------------------------------ */

bit swept[2]; /* this process holds no key of a slot that it does not own */
bit late_sweep[2]; /* a script that deletes such keys is in its socket */
bit token[2]; /* its mark is there still */

/* -- proxies ------------------------------------------------------------------------------------------------------ */

byte applied[2]; /* the state in the table in force */
bit from_of[2]; /* the source in it */
bit newest[2]; /* nothing was stored since */
bit of_action[2]; /* the action in it is the stored one */
bit absent[2]; /* the key is known to be absent from the source */
bit lease[2]; /* topom has answered lately, by the proxy's own clock */
bit saw_fence[2];
bit fenced[2]; /* stored */
#define at(proxy, server) (2 * (proxy) + (server))
bit connected[4];
bit known[4]; /* it was connected to this process while its lease ran */
bit mark[4]; /* the server knows that this identity is fenced */
bit cut_off[4]; /* topom knows that */

#define is_cut_off(proxy) (fenced[proxy] && cut_off[at(proxy, 0)] && cut_off[at(proxy, 1)])
#define is_past(proxy) (newest[proxy] || is_cut_off(proxy))
#define everyone_is_past (is_past(0) && is_past(1))

inline store(state) {
    stored = state;
    newest[0] = 0;
    newest[1] = 0
}

inline new_action() {
    of_action[0] = 0;
    of_action[1] = 0
}

#define same_route(proxy) \
    (applied[proxy] == MIGRATING && stored == MIGRATING && from_of[proxy] == from)

inline take_table(proxy) {
    if
#ifdef MEMORY_BY_ROUTE
    :: same_route(proxy)
#else
    :: of_action[proxy] && same_route(proxy)
#endif
    :: else -> absent[proxy] = 0
    fi;
    applied[proxy] = stored;
    from_of[proxy] = from;
    newest[proxy] = 1;
    of_action[proxy] = 1
}

/* Whose copy counts of a key that is on both servers: 1 for that of the server that gives it. */
#ifdef RESTART_FORGOTTEN
/* The only evidence was at the target, which has evicted it. */
#define givers_counts (!back)
#else
#ifdef CANCEL_AFTER_RESTART
#define givers_counts (!back && intact[from])
#else
#define givers_counts (back -> (intact[from] || !intact[to]) : intact[from])
#endif
#endif

/* A key that is taken, placed and dropped. */
inline move_key() {
#ifdef TWO_NAMES
    copy[0] = NONE; /* it has replaced the key by itself, and then deleted it */
    copy[1] = NONE
#else
    if
    :: copy[to] != NONE && !givers_counts
    :: else -> copy[to] = copy[from]
    fi;
    copy[from] = NONE
#endif
}

#define can_move(proxy) \
    (applied[proxy] == MIGRATING && from_of[proxy] == from && stored == MIGRATING && connected[at(proxy, from)])

/* final-fence: who saw a fence uses no server; whose lease is over, only the processes that it knew while that ran. */
#ifdef REDIALS
#define may_dial(proxy, server) (saw_fence[proxy] || lease[proxy] || known[at(proxy, server)])
#else
#ifdef TRUSTS_RESTARTED
#define may_dial(proxy, server) (!saw_fence[proxy])
#else
#define may_dial(proxy, server) (!saw_fence[proxy] && (lease[proxy] || known[at(proxy, server)]))
#endif
#endif

inline disconnect(proxy, server) {
    connected[at(proxy, server)] = 0
}

active [2] proctype Proxy() {
    byte me = _pid;
    byte server;
end:
    do
    /* Commands. */
    :: atomic { applied[me] == REST && connected[at(me, from_of[me])] -> perform(from_of[me]) }
    :: atomic { applied[me] == FINISHED && connected[at(me, 1 - from_of[me])] -> perform(1 - from_of[me]) }
    :: atomic { /* absent-first */
            applied[me] == MIGRATING && absent[me] && connected[at(me, 1 - from_of[me])] -> read_or_write(1 - from_of[me])
        }
    :: atomic { /* absent-first: what is known may have been so of a process that has ended since, unheard */
#ifdef DELETES_BY_MEMORY
            applied[me] == MIGRATING && absent[me] && connected[at(me, 1 - from_of[me])] ->
#else
            applied[me] == MIGRATING && connected[at(me, from_of[me])] && copy[from_of[me]] == NONE &&
                connected[at(me, 1 - from_of[me])] ->
#endif
            delete(1 - from_of[me])
        }
    :: atomic {
            applied[me] == MIGRATING && !absent[me] && connected[at(me, from_of[me])] && copy[from_of[me]] == NONE ->
            absent[me] = 1
        }
    :: atomic { can_move(me) && !absent[me] && copy[from] != NONE -> move_key(); absent[me] = 1 }
    :: atomic { can_move(me) && !absent[me] && copy[from] != NONE && copy[to] == NONE -> copy[to] = copy[from] } /* not dropped */

    /* topom. */
    :: atomic { !fenced[me] && !newest[me] -> lease[me] = 1; take_table(me) }
    :: atomic { !fenced[me] && !lease[me] -> lease[me] = 1 } /* a heartbeat is answered */
    :: atomic { lease[me] && me < MAY_BE_LOST -> lease[me] = 0 } /* it is cut off from topom, or pauses */
    :: atomic { /* it is told that it is fenced, and comes back under a new identity */
            fenced[me] && returns_left > 0 ->
            returns_left--;
            fenced[me] = 0;
            saw_fence[me] = 0;
            lease[me] = 1;
            server = 0;
            do
            :: server < 2 ->
                connected[at(me, server)] = 0;
                known[at(me, server)] = 0;
                mark[at(me, server)] = 0;
                cut_off[at(me, server)] = 0;
                server++
            :: else -> break
            od;
            server = 0;
#ifndef MEMORY_BY_ROUTE
            absent[me] = 0;
#endif
            take_table(me)
        }

    /* Connections. */
    :: atomic {
            true ->
            if
            :: server = 0
            :: server = 1
            fi;
            if
            :: connected[at(me, server)] || !may_dial(me, server)
            :: else ->
                if
                :: mark[at(me, server)] ->
                    saw_fence[me] = 1;
                    connected[at(me, 0)] = 0;
                    connected[at(me, 1)] = 0
                :: else ->
                    connected[at(me, server)] = 1;
                    if
                    :: lease[me] && me < MAY_BE_LOST -> known[at(me, server)] = 1
                    :: else
                    fi
                fi
            fi;
            server = 0
        }
    od
}

/* -- servers ------------------------------------------------------------------------------------------------------ */

/* What a server has from before counts where it is the owner's own loss: where the key was at no other server. While its
 * slot moves, a key that the source has is at home there, else at the target. */
#define moves (stored == MIGRATING || (stored == LOCKED && turning))
#define home (moves && copy[from] == NONE || stored == FINISHED -> to : from)

inline comes_back_older(me) {
    older[me] = (stored != REST);
    if
    :: me == home ->
        copy[me] = saved[me];
        if
        :: moves && (copy[0] == FRESH || copy[1] == FRESH)
        :: else -> own_loss(me)
        fi
    :: else ->
        copy[me] = saved[me];
        if
        :: moves && me == from && truth == ABSENT && copy[me] != NONE -> truth = ANY
        :: else
        fi
    fi
}

inline own_loss(me) {
    if
    :: truth == ANY
    :: truth != ANY && copy[me] == NONE -> outdate(); truth = ABSENT
    :: truth != ANY && copy[me] != NONE -> outdate(); copy[me] = FRESH; saved[me] = FRESH; truth = THERE
    fi
}

/* Where a server comes back with older data, the other one goes on as it is until the action is over. */
#ifdef BOTH_RESTART
#define may_restart(server) true
#define may_be_older(server) true
#else
#define may_restart(server) (!older[1 - (server)])
#define may_be_older(server) (intact[1 - (server)] || stored == REST)
#endif

active [2] proctype Server() {
    byte me = _pid - 2;
end:
    do
    :: atomic { restarts_left > 0 && saved[me] != copy[me] -> saved[me] = copy[me] }
    :: atomic { /* it restarts: with all it had, or with what its RDB file has; so it is with the marks */
            restarts_left > 0 && may_restart(me) ->
            restarts_left--;
            if
            :: true
            :: may_be_older(me) -> comes_back_older(me)
            fi;
            if
            :: restarts_left == 0 -> saved[0] = NONE; saved[1] = NONE /* nobody looks at them any more */
            :: else
            fi;
            intact[me] = 0;
            swept[me] = 0;
            late_sweep[me] = 0;
            token[me] = 0;
            connected[at(0, me)] = 0;
            connected[at(1, me)] = 0;
            known[at(0, me)] = 0;
            known[at(1, me)] = 0;
            if
            :: true
            :: mark[at(0, me)] = 0; mark[at(1, me)] = 0
            fi
        }
    :: atomic { /* owned: in the step that deletes, the mark of the sweep is looked at */
            late_sweep[me] ->
            late_sweep[me] = 0;
            if
#ifdef SWEEP_WITHOUT_TOKEN
            :: true -> copy[me] = NONE
#else
            :: token[me] -> copy[me] = NONE
            :: else
#endif
            fi
        }
    od
}

/* -- topom -------------------------------------------------------------------------------------------------------- */

#ifdef NO_SWEEP
#define may_receive(server) true
#else
#define may_receive(server) swept[server]
#endif

/* The mark of a fence is set, and connections end; the proxy may be fenced there already. */
#define FENCES(proxy, server) \
    :: atomic { \
            fenced[proxy] && !(cut_off[at(proxy, server)] && mark[at(proxy, server)]) -> \
            mark[at(proxy, server)] = 1; \
            disconnect(proxy, server); \
            cut_off[at(proxy, server)] = 1 \
        }

#define LEASE_ENDS(proxy) \
    :: atomic { !lease[proxy] && !fenced[proxy] && !newest[proxy] -> fenced[proxy] = 1 }

active proctype Topom() {
end:
    do
    :: atomic { /* a server that owns nothing is swept */
            stored == REST && !swept[to] ->
            copy[to] = NONE;
            swept[to] = 1;
            if
            :: true
            :: late_sweep[to] = 1; token[to] = 1
            fi
        }
#ifdef TWO_NAMES
    :: atomic { stored == REST && journeys > 0 ->
#else
    :: atomic { stored == REST && journeys > 0 && may_receive(to) ->
#endif
            journeys--;
            new_action();
            token[to] = 0;
            back = 0;
            older[0] = 0;
            older[1] = 0;
            intact[0] = 1;
            intact[1] = 1;
            store(LOCKED)
        }
    :: atomic { stored == LOCKED && !turning && !(intact[to] && may_receive(to)) -> store(REST) }
    :: atomic { /* drained */
            stored == LOCKED && !turning && intact[to] && may_receive(to) && everyone_is_past ->
            intact[from] = 1;
            older[0] = 0;
            older[1] = 0;
            store(MIGRATING)
        }
    :: atomic { stored == MIGRATING && !back -> turning = 1; store(LOCKED) }
    :: atomic {
            stored == LOCKED && turning && everyone_is_past ->
            turning = 0;
            back = 1;
            from = to;
            new_action();
            store(MIGRATING)
        }
    :: atomic { stored == MIGRATING && copy[from] != NONE -> move_key() } /* the migrator */
    :: atomic { stored == MIGRATING && copy[from] == NONE -> store(FINISHED) } /* complete */
    :: atomic {
            stored == FINISHED && everyone_is_past ->
            from = to;
            back = 0;
            older[0] = 0;
            older[1] = 0;
            new_action();
            store(REST)
#ifdef WITNESS_RETURN
            ;
            assert(journeys > 0 || returns_left > 0)
#endif
        }
    FENCES(0, 0)
    FENCES(0, 1)
    FENCES(1, 0)
    FENCES(1, 1)
    LEASE_ENDS(0)
    LEASE_ENDS(1)
    od
}
