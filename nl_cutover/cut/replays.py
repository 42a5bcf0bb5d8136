"""Which archives are unaccounted for only because a recorder has counted a replay since they were carried."""

from __future__ import annotations

from ..contract.rows import ARCHIVES, Row, Twins, key_text
from ..custody.reading import LedgerReader
from ..stores.identity import relocate
from ..stores.reader import Opened, read_store
from ..stores.report import StoreReport
from ..stores.tables import Table, find, typed


def replayed_since(store: StoreReport, reader: LedgerReader) -> list[str]:
    """A sentence for each such archive of a store, from what count to what. Raises UnmeasurableError."""

    def compare(opened: Opened) -> list[str]:
        said: list[str] = []
        table, twins = find(opened.connection, ARCHIVES), Twins()
        if not isinstance(table, Table):
            return said
        for values, _ in typed(opened.connection, table):
            row = Row(ARCHIVES, values)
            digest = twins.tell(row.key, row.digest)
            if reader.accounts(ARCHIVES, row.key, digest):
                continue
            key = key_text(row.key, digest)
            known, now = reader.carried_replays(key, row.content_digest), row["replay_count"]
            if known is not None and isinstance(now, int) and known != now:
                said.append(
                    f"archive {key} in store {store.id} was replayed since it was carried: "
                    f"its count went from {known} to {now}, its content is the same"
                )
        return said

    return read_store(relocate(store.location, store.identity), store.holders, compare)[0]
