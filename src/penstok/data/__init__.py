"""Reading the tokens of a finished job back.

It writes and checks nothing. `dataset` opens an output; `remote_tokens` reads one in S3.
"""
