"""Recorded texts on simulated machines, through the engine's own loop."""
