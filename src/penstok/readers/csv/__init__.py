"""CSV and TSV: one record per row, one document per record."""
