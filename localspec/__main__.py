"""`python -m localspec`."""

from localspec.cli.start import main

if __name__ == "__main__":
    raise SystemExit(main())
