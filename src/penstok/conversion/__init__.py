"""Conversion: other formats of finished outputs, and outputs made from other programs' files.

No text is read and nothing is encoded. `cli` and `api` call it.
"""
