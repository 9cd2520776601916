"""Floor 4: performs what the lifecycles declare."""
