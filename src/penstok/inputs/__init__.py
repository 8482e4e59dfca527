"""Inputs: listed, probed, opened and decompressed; formats and documents are for `readers`."""
