"""The transaction log of a Delta table, read and written without Spark: actions, replay, snapshots, history.

What the log records of rows in files is interpreted in `skipping`; the next version is written by `txn`.
"""
