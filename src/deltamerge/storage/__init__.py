"""Where tables are stored: listing, reading and atomic writing, on local file systems and in object stores.

Stores know paths and bytes. What a file means belongs to `log`; data files are read and written by Spark and `workers`.
"""
