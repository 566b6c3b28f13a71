"""Sessions, settings, catalogs and Column trees: what classic Spark and Spark Connect do differently."""
