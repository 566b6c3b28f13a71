"""The transaction log of a Delta table, read and written without Spark."""
