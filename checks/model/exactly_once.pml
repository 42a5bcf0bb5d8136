/* Exactly once over a save that is not idempotent: a worker, its ledger, a network that loses, a Memory Core.
 *
 *   spin -a -DEVIDENCE=1 exactly_once.pml && cc -o pan pan.c && ./pan -noclaim && ./pan -a -N safe && ./pan -a -N ends
 *
 * EVIDENCE 1: the graph of Memory Core can be read, so that unknown rows are settled. 0: they stay in the list.
 *
 * What is left out, and why that is fair:
 *   - one worker: workers share no row, and a crash takes all of them at once;
 *   - rows differ in content, so that a node in the graph names its row; among twins it matters not which is which;
 *   - a telemetry batch is a row here: it is intended, sent and settled as a whole;
 *   - FAULTS bounds crashes, losses and deadlines together: each row meets at most three moments at which a fault
 *     changes what the ledger knows (intent, answer, record), and every order of them occurs within the bound.
 */

#define ROWS 2

#ifndef FAULTS
#define FAULTS 6
#endif
#ifndef EVIDENCE
#define EVIDENCE 1
#endif

mtype = { nothing, pending, intended, delivered, confirmed, refused, unknown, saved };

mtype ledger[ROWS] = pending; /* on disk: the only thing that a crash leaves */
byte commits[ROWS];           /* archives in Memory Core that came from this row */
byte travelling[ROWS];        /* requests of this row that may still be executed */
bool unheard[ROWS];           /* what the list must show: intended, and no outcome on disk */

byte faults;
byte listening;               /* the call whose answer would still be read */
bool lost;                    /* the call being listened to will not be answered */
bool finished;

chan network = [4] of { byte, byte }; /* row, number of the call */
chan answers = [1] of { mtype };

#define may_fail(what) faults < FAULTS -> faults++; what
#define may_crash if :: may_fail(goto start) :: skip fi

#define at_rest(r) (ledger[r] == confirmed || ledger[r] == refused || (ledger[r] == unknown && !EVIDENCE))

inline flush() {
    d_step {
        for (other : 0 .. ROWS - 1) {
            if
            :: carried[other] != nothing ->
                ledger[other] = carried[other];
                unheard[other] = carried[other] == unknown;
                carried[other] = nothing
            :: else
            fi
        }
        other = 0
    }
}

active proctype Client() {
    byte row, other;
    mtype carried[ROWS] = nothing; /* outcomes that become durable with the next intent */
    mtype heard;

start:
    skip; /* a goto may not enter a d_step */
    d_step {
        for (row : 0 .. ROWS - 1) {
            carried[row] = nothing;
            if
            :: ledger[row] == intended -> ledger[row] = unknown /* a dead process left it in flight */
            :: ledger[row] == refused -> ledger[row] = pending  /* a refusal proves that nothing was stored */
            :: else
            fi
        }
        listening++; /* connections die with their process */
        row = 0
    }

    do
    :: row < ROWS ->
        if
        :: ledger[row] == pending ->
            may_crash;
            atomic { flush(); ledger[row] = intended; unheard[row] = true };
            may_crash;
            if
            :: may_fail(carried[row] = pending) /* no connection: no byte has left */
            :: atomic {
                listening++; lost = false;
                if :: answers?_ :: empty(answers) fi;
                travelling[row]++; network!row, listening
               };
               if
               :: answers?heard
               :: lost -> heard = unknown
               :: may_fail(heard = unknown) /* the deadline, while the request may still travel */
               fi;
               listening++;
               may_crash;
               if
               :: heard == saved -> atomic { flush(); ledger[row] = delivered; unheard[row] = false }
               :: heard != saved -> carried[row] = heard
               fi
            fi
        :: ledger[row] == delivered && carried[row] == nothing ->
            may_crash;
            if
            :: may_fail(skip) /* not read back yet */
            :: commits[row] > 0 -> carried[row] = confirmed
            fi
        :: ledger[row] == unknown && EVIDENCE ->
            travelling[row] == 0; /* evidence counts only when the request can no longer be executed */
            may_crash;
            if
            :: commits[row] == 0 -> ledger[row] = pending; unheard[row] = false
            :: commits[row] > 0 -> ledger[row] = delivered; unheard[row] = false
            fi
        :: else
        fi;
        row++
    :: else ->
        may_crash;
        flush();
        if
        :: at_rest(0) && at_rest(1) -> break
        :: else -> row = 0 /* the same command again */
        fi
    od;

    for (row : 0 .. ROWS - 1) {
        assert(ledger[row] == confirmed || ledger[row] == refused || (ledger[row] == unknown && !EVIDENCE));
        assert((ledger[row] == unknown) == unheard[row])
    };
    finished = true
}

active proctype MemoryCore() {
    byte row, call;
    mtype says;

end:
    do
    :: network?row, call ->
        if
        :: may_fail(says = nothing) /* lost on the way here */
        :: commits[row]++; says = saved
        :: says = refused
        fi;
        travelling[row]--;
        atomic {
            if
            :: call != listening -> skip
            :: call == listening && says != nothing -> answers!says
            :: call == listening && says == nothing -> lost = true
            :: call == listening && says != nothing && faults < FAULTS -> faults++; lost = true /* lost on the way back */
            fi
        }
    od
}

#define never_doubled(r) (commits[r] <= 1)
#define confirmed_is_there(r) (ledger[r] != confirmed || commits[r] == 1)
#define refused_is_not(r) (ledger[r] != refused || commits[r] == 0)
#define pending_never_left(r) (ledger[r] != pending || (commits[r] == 0 && travelling[r] == 0))
#define true_of(r) (never_doubled(r) && confirmed_is_there(r) && refused_is_not(r) && pending_never_left(r))
#define one_in_flight (ledger[0] != intended || ledger[1] != intended)

ltl safe { [] (true_of(0) && true_of(1) && one_in_flight) }
ltl ends { <> finished }
