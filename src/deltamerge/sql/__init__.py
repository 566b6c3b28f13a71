"""MERGE text and conditions, read through sqlglot; the only room that imports it."""
