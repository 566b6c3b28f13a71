"""PySpark's own calls on Delta tables, as they are with delta-spark's JAR.

`install` replaces methods of PySpark's classes, on classic Spark and over Connect, by functions of the other modules.
Each gets the original method first, and calls that where no Delta table of this library's is concerned.
"""
