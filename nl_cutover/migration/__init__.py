"""Plan, run, verify: from a snapshot of the host stores into MC, each row once."""
