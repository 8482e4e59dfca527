"""The output: where tokens go, what is recorded of them, and how a job is committed."""
