"""`localspec prune`: delete unfinished downloads and contents without a name."""

from __future__ import annotations

import sys
from typing import Any

import click

from localspec.cli import options as cli_options
from localspec.ground.terminal import one_line, row


@click.command()
@cli_options.option("--yes", "-y", is_flag=True, help="Do not ask.")
@cli_options.option("--dry-run", is_flag=True, help="Print what would go, delete nothing.")
@cli_options.cache_option
@cli_options.output_options
def prune(**values: Any) -> int:
    """Delete downloads that were never finished, and contents of the cache that no file name leads to."""
    from localspec.cli.rm import confirm
    from localspec.pairs.hub.hf_cache import cache_folder
    from localspec.pairs.hub.hub import Hub
    from localspec.pairs.store import cleanup
    from localspec.reports.transfer import size

    cache = cache_folder(values["cache_dir"])
    found = cleanup.leftovers(cache)
    if not found:
        print("nothing to prune")
        return 0
    lines = [row(f"{size(one.size):>9}  {one.what:<22}  {one.repo}  {one.etag[:12]}") for one in found]
    if values["dry_run"]:
        print("\n".join(lines))
        return 0
    if not values["yes"]:
        print("\n".join(lines), file=sys.stderr)
        confirm(f"Delete these {len(found)} files ({size(sum(one.size for one in found))})?")
    hub = Hub()
    gone, busy = cleanup.prune(cache, found, lambda cache, repo, etag: hub.lock(cache, repo, etag, 0.01))
    for one in busy:
        print(one_line(f"kept {one.etag[:12]} of {one.repo}: it is being downloaded"), file=sys.stderr)
    print(f"deleted {len(gone)} files, {size(sum(one.size for one in gone))} free")
    return 0
