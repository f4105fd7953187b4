"""Chat templates, and which of their text a person wrote."""
