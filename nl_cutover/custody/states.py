"""The state machine of a row, enforced in one place.

    archives
    from \\ to   pending  intended  delivered  confirmed  refused  unknown  differs
    pending                   x                              x
    intended       x                    x                    x        x
    delivered      x                              x                             x
    unknown        x                    x
    refused        x
    confirmed, differs: final; refused -> excluded is the operator's word that a row stays on the host

pending -> intended is durable before the first byte leaves. intended -> pending needs proof that nothing was executed.
unknown leaves only by evidence or by an operator's decision. delivered -> pending is the operator's word alone, for an
id that MC does not answer to. refused -> pending happens when a later run asks the
server again: a refusal proves that nothing was stored.

    actions: pending -> intended -> admitted | refused | unknown | pending; unknown -> admitted | refused | pending;
             pending <-> left; pending | left | refused -> discarded; refused -> pending | excluded
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
    "excluded": frozenset({"refused"}),
}

ACTION_MOVES: dict[str, frozenset[str]] = {
    "intended": frozenset({"pending"}),
    "admitted": frozenset({"intended", "unknown"}),
    "refused": frozenset({"intended", "pending", "unknown"}),
    "unknown": frozenset({"intended"}),
    "left": frozenset({"pending"}),
    "discarded": frozenset({"pending", "left", "refused"}),
    "pending": frozenset({"intended", "unknown", "left", "refused"}),
    "excluded": frozenset({"refused"}),
}
