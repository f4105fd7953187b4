"""A run and its report as people and programs read them."""
