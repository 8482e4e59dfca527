"""The worker: a unit of text in, its tokens written, on one core."""
