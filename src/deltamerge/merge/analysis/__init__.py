"""What a statement means for one snapshot, computed once."""
