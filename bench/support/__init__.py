"""What every bench shares: its command line, its services, its numbers."""
