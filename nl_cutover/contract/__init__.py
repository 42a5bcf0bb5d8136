"""The four operations as data: source rows, wire forms, projection, digests. No I/O."""
