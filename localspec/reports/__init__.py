"""What was found and measured, as people and programs read it: the same text in every front end."""
