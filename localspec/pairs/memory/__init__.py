"""What fits where."""
