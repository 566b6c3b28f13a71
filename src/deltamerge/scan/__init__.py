"""Files of a snapshot as DataFrames: column mapping, deletion vectors, row ids, partition values, change data.

What a merge does with the rows belongs to `merge`.
"""
