"""Tests of what runs in Spark's Python workers."""
