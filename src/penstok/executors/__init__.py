"""Executors: who runs the workers. Processes of one machine, or the nodes of a Ray cluster."""

from __future__ import annotations

from penstok.executors.processes import ProcessExecutor
from penstok.executors.ray import RayExecutor
from penstok.executors.ray_nodes import load_ray
from penstok.executors.tasks import TaskSpec
from penstok.executors.threads import ThreadExecutor

__all__ = ["ProcessExecutor", "RayExecutor", "TaskSpec", "ThreadExecutor", "load_ray"]
