"""Spark SQL without Spark: tokens, the MERGE parser and its AST, conditions as trees, names.

The SQL between a statement's keywords stays verbatim; what must ask Spark belongs to `deltamerge.spark`.
"""
