"""The round-trip matrix: tables with each of Delta's features, which deltamerge and others write in turn."""
