"""The terminal UI, the only import of textual. What it shows is made in `localspec.ui`."""
