"""Scripts as users of delta-spark have them, and what dbt's adapters send."""
