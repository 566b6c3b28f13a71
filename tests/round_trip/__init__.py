"""The round-trip matrix: tables with each of Delta's features go back and forth between deltamerge and others."""
