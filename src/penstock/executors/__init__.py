"""Executors: who runs the workers. Processes of one machine, or the nodes of a Ray cluster."""

from __future__ import annotations

from penstock.executors.cluster import RayExecutor
from penstock.executors.local import LocalExecutor
from penstock.executors.nodes import load_ray
from penstock.executors.slots import SlotExecutor
from penstock.executors.tasks import TaskSpec

__all__ = ["LocalExecutor", "RayExecutor", "SlotExecutor", "TaskSpec", "load_ray"]
