"""The terminal UI. The only import of textual; what it shows is made in `localspec.chat` and `localspec.session`."""
