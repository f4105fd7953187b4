"""`python -m benchmarks.simulator TRACES`: draft-length policies on recorded texts and simulated machines."""

from __future__ import annotations

from pathlib import Path

import click

from localspec.ground.errors import InvalidInput, UnreadableFile


@click.command()
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--profile", "names", multiple=True, help="Simulate only this machine; may be repeated.")
@click.option("--seeds", default=2, show_default=True, type=click.IntRange(1, 100), help="Runs per policy.")
@click.option(
    "--repeats", default=4, show_default=True, type=click.IntRange(1, 100), help="Times each text is read."
)
@click.option(
    "--longest", default=8, show_default=True, type=click.IntRange(0, 64), help="Longest fixed draft."
)
@click.option("--no-lookup", is_flag=True, help="Without offers of prompt lookup.")
def simulate(
    traces: tuple[Path, ...],
    names: tuple[str, ...],
    seeds: int,
    repeats: int,
    longest: int,
    no_lookup: bool,
) -> None:
    """Replay recorded draft chains under machine profiles and compare policies."""
    from benchmarks.simulator.comparison import compare, table
    from benchmarks.simulator.machine_profiles import PROFILES
    from benchmarks.simulator.traces import read_traces

    known = {profile.name: profile for profile in PROFILES}
    for name in names:
        if name not in known:
            raise InvalidInput(f"no machine profile named {name!r}", f"Use one of {', '.join(known)}")
    texts = []
    for path in traces:
        try:
            texts += read_traces(path, lookup=not no_lookup)
        except (OSError, ValueError) as error:
            raise UnreadableFile(f"{path}: {error}", "Give JSON files of traces") from error
    rows = [
        compare(text, known[name], range(seeds), repeats, longest)
        for name in names or known
        for text in texts
    ]
    for line in table(rows):
        click.echo(line)


if __name__ == "__main__":
    simulate()
