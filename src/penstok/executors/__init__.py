"""Executors: worker processes of this machine for units; this machine or Ray for tasks."""
