"""The specification, item by item."""
