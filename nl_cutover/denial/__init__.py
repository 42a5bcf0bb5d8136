"""Denial: no host process loads a SQLite driver or reaches the graph. A static and a runtime instrument, each controlled."""
