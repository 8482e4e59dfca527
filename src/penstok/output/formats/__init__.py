"""Formats of token files: how tokens and documents are laid out for one family of trainers."""
