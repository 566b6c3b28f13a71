"""Sessions, settings, catalogs and Columns: what differs between classic Spark and Spark Connect.

What knows a table's log or a merge does not belong here.
"""

from pyspark import cloudpickle

from deltamerge import workers

# Executors need not have this package: what they run travels with the task.
cloudpickle.register_pickle_by_value(workers)  # type: ignore[no-untyped-call]
