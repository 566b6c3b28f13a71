"""Which files of a table can hold rows that a condition is true for; no Spark here."""
