"""Spark SQL without Spark: tokens, the MERGE parser and its AST, conditions as trees, names.

What lies between a statement's keywords stays the user's SQL; what must ask Spark belongs to `deltamerge.spark`.
"""
