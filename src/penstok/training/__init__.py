"""Training a tokenizer on a sample of a corpus."""
