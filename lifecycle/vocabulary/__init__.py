"""Floor 1: values that are said. No behaviour, no I/O."""
