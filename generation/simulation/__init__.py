"""An evening at 1 : 1,000: simulated time, the real queue and the real admission."""
