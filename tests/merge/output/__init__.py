"""Tests of merge/output."""
