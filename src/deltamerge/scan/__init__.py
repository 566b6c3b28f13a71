"""Files of a snapshot as a DataFrame."""
