"""From the path of a conversation to the prompt of one run."""
