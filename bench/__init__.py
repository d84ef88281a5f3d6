"""Measured comparisons, each one command: `bench/history --quick`. See docs/performance.md."""
