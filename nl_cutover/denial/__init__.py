"""Proof that something cannot happen. It stands alone: what it needs from elsewhere is passed in."""
