"""Checks whether an output is what its job made, and repairs it.

`verify` compares records, tokens and inputs, writes nothing and returns a report; `repair`
re-encodes what is damaged. Neither prints: the command line words the report. Nothing is imported
here, so that `--help` can read `settings` alone.
"""
