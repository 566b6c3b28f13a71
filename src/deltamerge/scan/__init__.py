"""Files of a snapshot, and other Parquet files, as DataFrames."""
