"""A finished output as one HTML page: what went in, what came out, and its documents to read.

`report` is the whole line as one function. It uses `jobs`; `cli` and `api` use it.
"""
