"""The host side: checkouts, physical stores, and what is in them. Only `seal` writes to a store."""
