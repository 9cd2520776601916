"""Floor 3: lifecycles as pictures and tables. Reads only the definition."""
