"""The state machine of a row, enforced in one place.

    archives
    from \\ to   pending  intended  delivered  confirmed  refused  unknown  differs
    pending                   x                              x
    intended       x                    x                    x        x
    delivered      x                              x                             x
    unknown        x                    x
    refused        x
    confirmed, differs: final; refused, delivered -> excluded is the operator's word that a row stays on the host

pending -> intended is durable before the first byte leaves. intended -> pending needs proof that nothing was executed.
unknown leaves only by evidence or by an operator's decision. delivered -> pending is the operator's word alone, for an
id that MC does not answer to. refused -> pending happens when a later run asks the
server again: a refusal proves that nothing was stored.

    actions: pending -> intended -> admitted | refused | unknown | pending; unknown -> admitted | refused | pending;
             pending <-> left; pending | left | refused -> discarded; refused -> pending | excluded;
             pending | left | discarded -> refused
    batches: intended -> admitted | not-sent | refused | mixed | unknown; unknown | mixed -> admitted | not-sent

A row that nobody has sent, and that the plan or the absence of its store refuses, becomes what the next plan says of it
when it is entered again (`custody.entries`).
"""

from __future__ import annotations

ARCHIVE_MOVES: dict[str, frozenset[str]] = {
    "intended": frozenset({"pending"}),
    "delivered": frozenset({"intended", "unknown"}),
    "confirmed": frozenset({"delivered"}),
    "differs": frozenset({"delivered"}),
    "refused": frozenset({"pending", "intended"}),
    "unknown": frozenset({"intended"}),
    "pending": frozenset({"intended", "unknown", "refused", "delivered"}),
    "excluded": frozenset({"refused", "delivered"}),
}

ACTION_MOVES: dict[str, frozenset[str]] = {
    "intended": frozenset({"pending"}),
    "admitted": frozenset({"intended", "unknown"}),
    "refused": frozenset({"intended", "pending", "unknown", "left", "discarded"}),
    "unknown": frozenset({"intended"}),
    "left": frozenset({"pending"}),
    "discarded": frozenset({"pending", "left", "refused"}),
    "pending": frozenset({"intended", "unknown", "left", "refused"}),
    "excluded": frozenset({"refused"}),
}

BATCH_MOVES: dict[str, frozenset[str]] = {
    "admitted": frozenset({"intended", "unknown", "mixed"}),
    "not-sent": frozenset({"intended", "unknown", "mixed"}),
    "refused": frozenset({"intended"}),
    "mixed": frozenset({"intended"}),
    "unknown": frozenset({"intended"}),
}

MOVES = {"archives": ARCHIVE_MOVES, "actions": ACTION_MOVES, "batches": BATCH_MOVES}
