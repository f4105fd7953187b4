"""What stands in for models: a target and drafters that play a trace, behind the protocols of the engine's loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulator.machine import Machine
from benchmarks.simulator.traces import Trace, luck
from localspec.engine.drafters.lookup_belief import LookupBelief
from localspec.engine.drafters.model_belief import GLANCE_ROWS, ModelBelief
from localspec.engine.drafters.ngram_index import NO_MATCH
from localspec.engine.drafters.protocol import Forecast, Worth
from localspec.engine.noise import Chance
from localspec.engine.records import NO_DRAFT, Draft, Pass, Provenance, Round, Spent
from localspec.engine.settings import SamplerSettings
from localspec.engine.verify import Verification

_NO_LOGITS = np.empty((0, 0), np.float32)


class Story:
    """One answer: a trace, said `repeats` times in a row, and its luck."""

    def __init__(self, trace: Trace, seed: int, repeats: int) -> None:
        self.trace = trace
        self.prompt = len(trace.prompt)
        self.length = repeats * len(trace.output)
        self._seed = seed * 1000

    def at(self, position: int) -> int:
        """The place in the trace of the token at this position of the sequence."""
        return (position - self.prompt) % len(self.trace.output)

    def left(self, position: int) -> int:
        """Guesses that can be judged from here: the last token of the text is nobody's guess."""
        return len(self.trace.output) - self.at(position) - 1

    def judge(self, draft: Draft, seen: Pass, position: int) -> Verification:
        """What the target makes of a draft, by the luck of this place."""
        at, guesses, kept = self.at(position), len(draft.ids), 0
        if guesses:
            drawn = luck(self.trace, self._seed + (position - self.prompt) // len(self.trace.output))
            kept = min(guesses, (drawn.copied if draft.drafter == "lookup" else drawn.kept)[at])
        origin = Provenance.CORRECTED if kept < guesses else Provenance.BONUS if kept else Provenance.PLAIN
        return Verification(tuple(range(kept)), self.trace.output[at + kept], origin)


class TraceTarget:
    """Passes take the machine's time and say nothing: `Story.judge` does."""

    n_vocab = 1 << 31
    max_rows = 17
    """As the engine sizes it for `auto`."""
    capacity = 1 << 30
    max_rewind = None

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.tokens: list[int] = []
        self._scored: tuple[int, Sequence[int]] = (0, ())

    @property
    def length(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int], rows: int = 1) -> NDArray[np.float32]:
        """Reading a prompt is not timed: no policy decides on it."""
        self.tokens.extend(tokens)
        return _NO_LOGITS

    def score(
        self, last: int, ids: Sequence[int], parents: Sequence[int] | None = None
    ) -> NDArray[np.float32]:
        self._scored = last, ids
        self._machine.target_pass(1 + len(ids), len(self.tokens) + 1)
        return _NO_LOGITS

    def keep(self, path: Sequence[int]) -> None:
        last, ids = self._scored
        self.tokens.append(last)
        self.tokens.extend(ids[: len(path)])
        self._machine.host(1 + len(ids))

    def rewind(self, length: int) -> int:
        del self.tokens[length:]
        return length

    def rewinds_to(self, length: int) -> int:
        return length

    def checkpoint(self) -> None:
        pass

    def state_size(self) -> int:
        return 0

    def save(self) -> NDArray[np.uint8]:
        return np.empty(0, np.uint8)

    def restore(self, state: NDArray[np.uint8], tokens: Sequence[int]) -> bool:
        return False


class TraceText:
    """Tokens without a text, none of which ends the answer."""

    size = 1 << 31

    def token_bytes(self, token: int) -> bytes:
        return b""

    def is_end(self, token: int) -> bool:
        return False


class _Actor:
    """What both drafters have in common: a sequence that grows, and nothing to store."""

    trouble = ""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._position = 0

    def catch_up(self) -> None:
        pass

    def follow(self, tokens: Sequence[int], seen: Pass | None, path: Sequence[int]) -> None:
        self._position = len(tokens)

    def measure(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def save(self) -> object:
        return None

    def saved_bytes(self) -> int:
        return 0

    def restore(self, saved: object) -> bool:
        return False

    def beliefs(self) -> Mapping[str, Any] | None:
        return None

    def believe(self, stored: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class TraceModelDrafter(_Actor):
    """The small model: confidences and luck of the recorded chains, the machine's time."""

    name = "model"

    def __init__(self, story: Story, machine: Machine, belief: ModelBelief) -> None:
        super().__init__(story)
        self._machine = machine
        self._belief = belief
        self._held = 0
        self._left_a_hole = False

    def begin(self, tokens: Sequence[int], sampler: SamplerSettings, ends: frozenset[int], related: bool) -> None:
        self._belief.begin(related)
        self._position = len(tokens)
        self._held = 0

    def forecast(self, room: int) -> Forecast | None:
        room = min(room, self._story.left(self._position))
        if room <= 0:
            return None
        return self._belief.forecast(room, self._position - self._held, self._position)

    def catch_up(self) -> None:
        """Not timed, as the target's reading is not."""
        self._held = self._position - 1

    def propose(self, limit: int, worth: Worth, chance: Chance, probe: bool) -> Draft:
        at, position, belief = self._story.at(self._position), self._position, self._belief
        confidences = self._story.trace.confidences[at]
        limit = min(limit, len(confidences))
        if limit <= 0:
            return NO_DRAFT
        made = 1
        belief.start()
        while made < limit and worth(belief.chance_after(confidences[made - 1]), made):
            made += 1
        missing = position - self._held
        self._left_a_hole = probe and missing > GLANCE_ROWS
        rows = min(missing, GLANCE_ROWS) if probe else missing
        seconds = self._machine.draft_passes(rows, made, position)
        ids = self._story.trace.output[at : at + made]
        return Draft.chain(self.name, ids, confidences[:made], None, Spent(seconds, 0.0, rows))

    def learn(self, round_: Round) -> None:
        self._belief.learn(round_)
        if round_.drafter == self.name and not self._left_a_hole:
            self._held = round_.position + min(round_.accepted, round_.verified - 1)


class TraceLookupDrafter(_Actor):
    """Prompt lookup, whose searches were made when the trace was read."""

    name = "lookup"

    def __init__(self, story: Story, belief: LookupBelief) -> None:
        super().__init__(story)
        self._belief = belief
        self._offer = NO_MATCH

    def begin(self, tokens: Sequence[int], sampler: SamplerSettings, ends: frozenset[int], related: bool) -> None:
        self._belief.begin(related)
        self._position = len(tokens)

    def forecast(self, room: int) -> Forecast | None:
        self._offer = self._story.trace.offers[self._story.at(self._position)]
        return self._belief.forecast(self._offer, min(room, self._story.left(self._position)))

    def propose(self, limit: int, worth: Worth, chance: Chance, probe: bool) -> Draft:
        ids = self._offer.ids[:limit]
        return Draft.chain(self.name, ids, (1.0,) * len(ids))

    def learn(self, round_: Round) -> None:
        self._belief.learn(self._offer, round_)
        self._offer = NO_MATCH
