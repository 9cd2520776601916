"""Adapters to the world outside: providers, stores, hosts. Imports `lifecycle`; is never imported by it."""
