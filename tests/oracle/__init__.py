"""delta-spark, in a process of its own, as a second opinion."""
