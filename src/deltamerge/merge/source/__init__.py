"""The source of a merge as Spark reads it, and what one pass over it shows of its keys.

The files of a key lookup's source belong to `executors`.
"""
