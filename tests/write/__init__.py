"""Tests of writing rows."""
