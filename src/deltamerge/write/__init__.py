"""DataFrames into data files: values cast to their columns, constraints, generated columns, statistics, new tables.

Which rows are written is decided elsewhere.
"""
