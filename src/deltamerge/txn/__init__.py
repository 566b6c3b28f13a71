"""Optimistic transactions: conflict checks, the atomic commit, and the upkeep of the log that follows it.

What a commit holds is prepared by the callers; no Spark here.
"""
