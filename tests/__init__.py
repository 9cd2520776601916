"""The tests. Folders mirror the packages; `conformance/` holds one file per group of the specification."""
