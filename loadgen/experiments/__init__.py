"""Experiments: loads described as data under `specs/load`, and pure reports of what they show."""
