"""The public API: what users import.

It parses arguments into a statement or a definition and runs it; it decides nothing about how.
"""
