"""Optimistic transactions: conflict detection and commits; no Spark here."""
