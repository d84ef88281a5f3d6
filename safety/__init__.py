"""Policy, classifiers and verdicts."""
