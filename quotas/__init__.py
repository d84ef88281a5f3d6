"""Plans, limits and the usage ledger."""
