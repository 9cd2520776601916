"""One performer per wire name: what the lifecycles' effects do. A module per part of a turn, in the order of a run."""
