"""Answers that have to follow a grammar."""
