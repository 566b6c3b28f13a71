"""Sessions, settings, catalogs and Column trees: what classic Spark and Spark Connect do differently.

What knows a table's log or a merge does not belong here.
"""

from pyspark import cloudpickle

from deltamerge import workers

# Executors need not have this package: what they run travels with the task.
cloudpickle.register_pickle_by_value(workers)  # type: ignore[no-untyped-call]
