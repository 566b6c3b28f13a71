"""The data source ``delta``: what it does beside Spark's driver, in a Python worker without a session.

Here the log is read and written for `workers.data_source`, by the options of a query and by the session's settings as
they were when the source was registered. Rows are read and written in `workers`.
"""
