"""The model hub: what is there, and getting it here."""
