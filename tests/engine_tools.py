"""Engines for tests: the loop over two real libllama contexts or two scripted models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localspec.engine.control.controller import FixedController
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.drafters.model_belief import ModelBelief
from localspec.engine.drafters.protocol import Drafter
from localspec.engine.drive import drive
from localspec.engine.engine import Engine
from localspec.engine.generate import Generation, Limits
from localspec.engine.model import Model, TextVocabulary
from localspec.engine.records import Finished, Round, RoundFinished, Token
from localspec.engine.settings import GenerationRequest, LoadSettings, SamplerSettings, SpeculationSettings

GREEDY = SamplerSettings(temperature=0)


class Answer:
    """One answer and the rounds that made it."""

    def __init__(self, events: Sequence[object]) -> None:
        rounds = [event for event in events if isinstance(event, RoundFinished)]
        finished = events[-1]
        assert isinstance(finished, Finished)
        self.finished = finished
        self.rounds: list[Round] = [event.round for event in rounds]
        self.tokens: list[Token] = [token for event in rounds for token in event.tokens] + list(finished.tail)

    @property
    def ids(self) -> tuple[int, ...]:
        return self.finished.tokens

    @property
    def text(self) -> str:
        return self.finished.text


def model_drafter(draft: Model, **arguments: object) -> ModelDrafter:
    """One that believes what a fresh pair is believed to do."""
    return ModelDrafter(draft, ModelBelief("model"), **arguments)  # type: ignore[arg-type]


def run_fake(
    target: Model,
    vocabulary: TextVocabulary,
    prompt: Sequence[int],
    *,
    draft: Model | None = None,
    drafter: str = "none",
    length: int = 4,
    sampler: SamplerSettings = GREEDY,
    limits: Limits | None = None,
    ends: frozenset[int] = frozenset(),
) -> Answer:
    """One answer of the loop over any models."""
    drafters: list[Drafter] = [model_drafter(draft)] if draft is not None else []
    if drafter == "lookup":
        drafters.append(LookupDrafter())
    controller = FixedController(drafter, length)
    generation = Generation(
        target, vocabulary, drafters, controller, sampler, limits or Limits(64), prompt, ends=ends
    )
    return Answer(list(drive(generation, target)))


def open_engine(target: Path, draft: Path | None = None, **settings: object) -> Engine:
    """A real engine in this process."""
    return Engine(LoadSettings(target, draft, **settings), threads=1)  # type: ignore[arg-type]


def ask(
    engine: Engine,
    prompt: str,
    *,
    drafter: str = "auto",
    length: int | None = None,
    sampler: SamplerSettings = GREEDY,
    max_tokens: int | None = 64,
    **request: object,
) -> Answer:
    """One answer to a raw prompt."""
    return Answer(
        list(
            engine.generate(
                GenerationRequest(
                    prompt=prompt,
                    sampler=sampler,
                    speculation=SpeculationSettings(drafter, length),
                    max_tokens=max_tokens,
                    **request,  # type: ignore[arg-type]
                )
            )
        )
    )
