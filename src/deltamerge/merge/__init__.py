"""MERGE itself: the command, its executors and the generation of their output."""
