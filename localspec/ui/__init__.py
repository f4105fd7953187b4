"""Conversations without any screen: what was said, how it was made, and the files that keep it."""
