"""What a name means: catalogue, pairs on disk, files."""
