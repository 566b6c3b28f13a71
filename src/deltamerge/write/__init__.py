"""Rows into data files of a table, what must hold for them, and tables that are made."""
