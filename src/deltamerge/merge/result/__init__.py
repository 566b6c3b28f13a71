"""What a merge commits and reports."""
