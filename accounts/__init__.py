"""Who people are: organisations, users, preferences, API tokens, and the one seal/open door."""
