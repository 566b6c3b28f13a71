"""The operators of a plan: finding matches, making changed rows, treating unchanged ones.

Which of them run is decided in `planning`; nothing here commits.
"""
