"""The ledger: one line per finished unit, each with its own checksum."""
