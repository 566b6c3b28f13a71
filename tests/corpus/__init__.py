"""MERGE statements with what delta-spark makes of them, run as tests."""
