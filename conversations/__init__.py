"""The tree of messages: models, pure tree functions, access doors, verbs and reads."""
