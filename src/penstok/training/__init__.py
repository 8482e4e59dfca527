"""Training a tokenizer on a sample of a corpus.

`train` is the command as one function; `sample` chooses the text, `process` runs `trainer`, which
learns the vocabulary, in a process of its own. Nothing here encodes text.
"""
