"""What runs inside Spark's Python workers; imports nothing of the package but itself."""
