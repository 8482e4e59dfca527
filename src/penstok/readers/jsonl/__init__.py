"""JSON Lines: one record per line, one document per record."""
