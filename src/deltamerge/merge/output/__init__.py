"""The expressions of the rows that a merge writes."""
