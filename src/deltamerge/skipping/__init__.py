"""Data skipping: which files may hold rows that a condition is TRUE for, and the statistics that this needs.

Conditions arrive as `predicates`, already parsed; no SQL and no Spark here. An answer is "may match" or "cannot".
"""
