"""Train a tiny bigram model on `tokens/`, which is read as nanoGPT's `get_batch` reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

VOCAB_SIZE, COLUMNS = 50_304, 16  # nanoGPT also rounds GPT-2's 50,257 up
BATCH_SIZE, BLOCK_SIZE = 4, 32
random = np.random.default_rng(1337)


def get_batch(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Take random windows; the targets are the same windows, one token later."""
    data = np.memmap(folder / f"{split}.bin", dtype=np.uint16, mode="r")
    starts = random.integers(len(data) - BLOCK_SIZE, size=BATCH_SIZE)
    x = np.stack([data[i : i + BLOCK_SIZE].astype(np.int64) for i in starts])
    y = np.stack([data[i + 1 : i + 1 + BLOCK_SIZE].astype(np.int64) for i in starts])
    return x.ravel(), y.ravel()


embedding = random.normal(0, 0.02, (VOCAB_SIZE, COLUMNS)).astype(np.float32)
head = random.normal(0, 0.02, (COLUMNS, VOCAB_SIZE)).astype(np.float32)
bias = np.zeros(VOCAB_SIZE, np.float32)
for step in range(20):
    x, y = get_batch(Path("tokens"), "train")
    logits = embedding[x] @ head + bias
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    if step % 5 == 0:
        print(f"step {step}: loss {-np.log(chances[np.arange(len(y)), y]).mean():.2f}")
    chances[np.arange(len(y)), y] -= 1  # the gradient of the loss
    head -= 0.1 * embedding[x].T @ chances
    np.add.at(embedding, x, -0.1 * chances @ head.T)
    bias -= 0.1 * chances.sum(axis=0)
