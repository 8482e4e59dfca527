"""Counting tokens without writing any, and comparing tokenizers.

`count` is the whole line as one function. It uses `jobs`; `cli` and `api` use it.
"""
