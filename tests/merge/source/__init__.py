"""Tests of merge/source."""
