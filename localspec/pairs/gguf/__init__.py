"""What a GGUF file says of itself."""
