"""The same pair in another engine: one file a format, each a pure function from `PairSettings` to text."""
