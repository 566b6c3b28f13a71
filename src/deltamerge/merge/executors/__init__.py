"""The operators of a merge."""
