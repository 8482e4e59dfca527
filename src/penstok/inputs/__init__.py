"""Inputs: found, probed, opened, decompressed; no documents yet."""
