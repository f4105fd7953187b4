"""Pairs and files on this disk."""
