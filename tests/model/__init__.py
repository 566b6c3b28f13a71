"""MERGE in plain Python, and random merges that must do what it says."""
