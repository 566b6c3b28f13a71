"""Random merges, each run by deltamerge and by delta-spark on copies of one table."""
