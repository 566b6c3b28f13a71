"""DataFrames into data files, with statistics."""
