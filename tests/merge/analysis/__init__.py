"""Tests of merge/analysis."""
