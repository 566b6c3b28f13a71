"""Tests of what sessions do differently."""
