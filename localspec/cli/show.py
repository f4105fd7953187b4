"""`localspec show`: everything known about one pair."""

from __future__ import annotations

from typing import Any

import click

from localspec.cli import options as cli_options
from localspec.cli.completing import only_pair_names
from localspec.cli.streams import print_json
from localspec.ground.terminal import one_line


@click.command()
@click.argument("pair", shell_complete=only_pair_names)
@cli_options.output_options
def show(pair: str, **values: Any) -> int:
    """Where the files of PAIR are, what the check said, what was measured."""
    from localspec.cli.pull import pair_json
    from localspec.pairs.store.store import Store
    from localspec.session import verdicts

    store = Store()
    lock = store.get(pair)
    if values["as_json"]:
        details = {
            "masked_ids": lock.masked_ids,
            "reasons": list(lock.reasons),
            "pulled": lock.pulled,
            "source": lock.source,
            "measured": verdicts.as_json(verdicts.of_models([model.paths() for model in lock.models])),
            "lock": str(store.path_of(lock)),
        }
        print_json({"schema": 1} | pair_json(lock) | details)
    else:
        print("\n".join(_lines(lock, str(store.path_of(lock)))))
    return 0


def _lines(lock: Any, path: str) -> list[str]:
    from localspec.session import verdicts

    rows = [("name", lock.full_name), ("state", lock.state_text())]
    for role, model in zip(("target", "draft"), lock.models, strict=False):
        rows += _model_rows(role, model)
    if lock.draft is None:
        rows.append(("draft", f"none: {lock.why_no_draft}"))
    if lock.verdict:
        masked = f", {lock.masked_ids} ids masked" if lock.masked_ids else ""
        rows.append(("check", lock.verdict + masked))
    rows += [("", reason) for reason in lock.reasons]
    paths = [model.paths() for model in lock.models]
    known = verdicts.of_models(paths)
    rows += [("measured", text) for text in verdicts.describe(known)]
    if reason := verdicts.stale_reason_of(paths):
        rows.append(("measured", f"what was measured holds no more: {reason}"))
    rows += [("pulled", lock.pulled), ("source", lock.source), ("lock", path)]
    return [f"{label:<9} {one_line(str(text), 300)}".rstrip() for label, text in rows]


def _model_rows(role: str, model: Any) -> list[tuple[str, str]]:
    from localspec.reports.transfer import size

    place = f"{model.repo} @ {model.revision}" if model.repo else "used in place"
    billions = f"{model.parameters / 1e9:.2f}B parameters" if model.parameters else ""
    facts = (model.architecture, model.quant, billions, size(model.size), model.licence)
    rows = [(role, f"{model.name} ({', '.join(filter(None, facts))})"), ("", place)]
    for file in model.files:
        state = model.file_state(file)
        mark = "" if state == "complete" else f" [{'missing' if state == 'incomplete' else state}]"
        rows.append(("", f"{model.path_of(file)}{mark}"))
    return rows
