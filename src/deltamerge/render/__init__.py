"""Reports for people and programs: terminal, notebook, JSON, and the progress of a running merge.

Renderings know of a merge only its `MergeOutcome`, and need no Spark.
"""
