"""The public API: what users import."""
