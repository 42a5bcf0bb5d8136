"""What a run keeps: the ledger while it works, receipts when it is done."""
