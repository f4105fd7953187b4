"""Which drafter, and how long a draft: decided by time."""
