/* Standing down: a proxy that topom cannot fence off a master, and the replica that takes that master's place.
 *
 * It shows one-owner where a lost proxy may still reach the former master, whatever becomes of topom, of its messages,
 * and of the replicas, which forget their marks when they are started anew. The code is proxy/supervisor/standdown/evidence.py and
 * topom/proxies/standdown.py. README.md says what is left out.
 *
 * The former master itself is not here: that it was started anew and has forgotten the mark, that topom sets the mark
 * again, and that a process which the proxy did not know while it was answered is not believed, is in journeys.pml
 * (TRUSTS_RESTARTED, REDIALS). The seam is one sentence, asserted here: no allowance lasts longer than topom waits.
 * What the proxy may still know of a server by the one, it uses within the other.
 *
 * Time goes on in steps for all alike, and as slowly as it likes: any number of other things happen between two of them.
 * Of every moment it is known how much of the allowance is left that counts from it. Of the group's replicas there is the
 * one that topom chooses; the others are taken to say that they have no mark whenever they are asked.
 */

#ifndef ALLOWANCE
#define ALLOWANCE 3
#endif
#ifdef SHORT_WAIT
#define WAIT (ALLOWANCE - 1)
#else
#define WAIT (ALLOWANCE + 1)
#endif
#define RESTARTS 2
#define LEADERS 2

/* -- topom and the store ------------------------------------------------------------------------------------------ */

bit fenced;   /* stored of the proxy */
bit waiting;  /* this leader has had the mark set */
byte left;    /* of its wait */
bit confirmed; /* the wait is over, and the mark was still there */
bit promoted; /* the replica is the master */
byte leaders = 1;

/* -- the replica -------------------------------------------------------------------------------------------------- */

bit mark;
byte process = 1; /* 0 is none */
byte restarts;

/* -- the proxy ---------------------------------------------------------------------------------------------------- */

byte heard = ALLOWANCE; /* what topom's answers leave */
byte word;              /* what the replica's word leaves */
byte seen, trusted;     /* its process: when it answered last, and the one that cannot have forgotten a mark */
/* A heartbeat, and a question: none, under way, answered; what is left of the allowance from when it was sent. */
#define NONE 0
#define SENT 1
#define ANSWERED 2
byte beat, beat_left, seen_then;
byte asked, asked_left, answered_by;

#ifdef UNWATCHED
#define served (heard <= ALLOWANCE) /* always: its table does not have the replica */
#else
#define served (heard || word)
#endif

inline at_least(counter, value) {
	if
	:: counter < value -> counter = value
	:: else
	fi
}

inline count_down(counter) {
	if
	:: counter > 0 -> counter--
	:: else
	fi
}

active proctype Everything() {
end:
	do
	/* The proxy. A worker may read a reply of the former master now, and give it to a client. */
	:: atomic { served -> assert(!promoted) }
#ifdef WITNESS_WORD
	:: atomic { fenced && !heard && served -> assert(false) }
#endif
	:: atomic { beat == NONE -> beat = SENT; beat_left = ALLOWANCE; seen_then = seen }
	:: atomic {
		beat == ANSWERED ->
#ifdef FROM_ANSWER
		heard = ALLOWANCE;
#else
		at_least(heard, beat_left);
#endif
		trusted = seen_then; beat = NONE; beat_left = 0; seen_then = 0
	   }
	:: atomic { beat != NONE -> beat = NONE; beat_left = 0; seen_then = 0 }
	:: atomic { asked == NONE -> asked = SENT; asked_left = ALLOWANCE }
	:: atomic {
		asked == ANSWERED ->
		seen = answered_by;
		if
#ifdef NO_TRUST
		:: true -> at_least(word, asked_left)
#else
		:: trusted == answered_by -> at_least(word, asked_left)
		:: else
#endif
		fi;
		asked = NONE; asked_left = 0; answered_by = 0
	   }
	:: atomic { asked != NONE -> asked = NONE; asked_left = 0; answered_by = 0 }
	/* The replica. That it has a mark, or is a master, is no word for anything. */
	:: atomic { asked == SENT && !mark && !promoted -> asked = ANSWERED; answered_by = process }
	:: atomic { restarts < RESTARTS -> restarts++; process++; mark = 0 }
	/* topom. It may take the proxy for lost at any time. */
#ifdef ANSWERS_THE_FENCED
	:: atomic { beat == SENT -> beat = ANSWERED }
#else
	:: atomic { beat == SENT && !fenced -> beat = ANSWERED }
#endif
	:: atomic { !fenced -> fenced = 1 }
#ifdef MARK_BEFORE_FENCE
	:: atomic { !waiting -> mark = 1; waiting = 1; left = WAIT }
#else
	:: atomic { fenced && !waiting -> mark = 1; waiting = 1; left = WAIT }
#endif
	:: atomic {
		waiting && !confirmed && left == 0 ->
		if
		:: mark && fenced -> confirmed = 1
		:: else -> waiting = 0
		fi
	   }
	:: atomic {
		confirmed && !promoted -> promoted = 1
#ifdef WITNESS
		; assert(false)
#endif
	   }
	/* Another leads. What the former one still does makes no master that the table names. */
	:: atomic { leaders < LEADERS && !promoted -> leaders++; waiting = 0; left = 0; confirmed = 0 }
	/* Time. */
	:: atomic {
		true ->
		count_down(heard); count_down(word); count_down(left);
		count_down(beat_left); count_down(asked_left)
	   }
	od
}
