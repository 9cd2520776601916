"""Floor 5: proves what the definition promises. Simulated runs with virtual time and a chosen order."""
