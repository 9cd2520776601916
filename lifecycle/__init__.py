"""The lifecycle of an agent turn and step, declared once."""
