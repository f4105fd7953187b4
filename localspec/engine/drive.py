"""One generation and its target: what it asks for is read, and it hears what was said.

`Generation` says in `ask` what the target should read and makes an event of the pass in `take`; nothing in it
assumes that the pass held its rows alone. So a driver of several generations can read for all of them at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from localspec.engine.generate import Ask, Generation
from localspec.engine.model import Model
from localspec.engine.records import Event, Pass
from localspec.ground.errors import Cancelled


def drive(
    generation: Generation, target: Model, clock: Callable[[], float] = time.perf_counter
) -> Iterator[Event]:
    """Every event of one answer; the last is `Finished`, also when it was cancelled. Errors are raised."""
    try:
        yield from generation.begin()
        while (ask := generation.ask()) is not None:
            yield from generation.take(read(ask, target, clock))
    except Cancelled:
        generation.cancel()
    yield generation.finish()


def read(ask: Ask, target: Model, clock: Callable[[], float]) -> Pass:
    """One pass of the target."""
    start = clock()
    if ask.draft is None:
        target.extend(ask.tokens, 0)
        return Pass(_NO_ROWS, None, clock() - start)
    draft = ask.draft
    logits = target.score(ask.tokens[-1], draft.ids, None if draft.is_chain else draft.parents)
    return Pass(logits, None, clock() - start)


_NO_ROWS = np.empty((0, 0), np.float32)
