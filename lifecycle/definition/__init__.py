"""Floor 2: what a lifecycle is, and ours. No I/O, no clock, no task."""
