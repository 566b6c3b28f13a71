"""The expressions of the rows that a merge writes (Delta's MergeOutputGeneration).

What reads or writes rows does not belong here.
"""
