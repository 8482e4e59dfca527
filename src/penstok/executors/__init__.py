"""Executors: local worker processes run units; this machine or Ray runs tasks."""
