"""Floor 3, the durable half: the append-only log, what it derives, and the stores that keep it."""
