"""Parsers of the statements that Delta has besides MERGE: each reads a skeleton, and keeps what is between verbatim."""
