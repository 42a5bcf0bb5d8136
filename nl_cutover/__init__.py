"""Move Neural Link data out of host SQLite stores into the Memory Core's graph."""

__version__ = "0.1.0"
