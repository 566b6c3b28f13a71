"""Tests of merge/executors."""
