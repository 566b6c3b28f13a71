"""The source of a merge."""
