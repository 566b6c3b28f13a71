"""What runs inside Spark's Python workers; imports nothing of the package but itself.

Executors need not have the package: `deltamerge.spark` registers this one to travel with the tasks.
"""
