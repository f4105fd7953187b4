"""What this machine and this build can do: `gather` finds the facts, pure functions in `rules` judge them."""
