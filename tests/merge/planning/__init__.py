"""Tests of merge/planning."""
