"""Executors: who runs the workers. One machine's processes today."""

from __future__ import annotations

from penstock.executors.local import LocalExecutor

__all__ = ["LocalExecutor"]
