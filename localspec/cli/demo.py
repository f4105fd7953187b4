"""`localspec demo`: the main job on a small model that came with the package, no hub needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localspec.cli import options as cli_options
from localspec.engine.drafters import table

if TYPE_CHECKING:
    from localspec.engine.records import Finished
    from localspec.engine.settings import GenerationRequest
    from localspec.session import Session

TEXT = """\
Shopping list for Saturday:
- 2 loaves of rye bread from the bakery on Mill Lane
- 500 g of unsalted butter and 12 free-range eggs
- 3 jars of apricot jam for the school breakfast
- 1 bag of oranges, 1 bag of lemons, 4 ripe pears
- washing powder, dish soap and a new sponge
"""
PROMPT = f"Repeat the following text exactly, word for word, and add nothing.\n\n{TEXT}"
ROUNDS = 3
TOKENS = 120
_DRAFTER = next(name for name, entry in table.DRAFTERS.items() if not entry.needs_draft)


@click.command()
@cli_options.option("--model", type=click.Path(path_type=Path), help="Another small GGUF file to show it on.")
@cli_options.option("--quiet", "-q", is_flag=True, help="Only the measured result.")
def demo(model: Path | None, quiet: bool) -> int:
    """Let a small model copy a list, once plain and once with prompt lookup, and say what was measured."""
    from localspec.pairs.names.demo_model import carried_model
    from localspec.session import LoadOptions, open_session

    path = model or carried_model()
    with open_session(str(path), LoadOptions(draft="none", context=1024)) as session:
        say = _nothing if quiet else _say
        say(f"{path.name}: {session.info.target.parameters / 1e6:.0f}M parameters, {session.info.threads} threads")
        say("Prompt lookup guesses that what followed these words before follows again.")
        say("The model checks every guess, so the text is its own.")
        say("")
        _show(session, quiet)
        pairs = []
        for number in range(ROUNDS):
            if not quiet:
                print(f"measuring, pair {number + 1} of {ROUNDS}", file=sys.stderr)
            plain, guessed = _answer(session, table.NONE), _answer(session, _DRAFTER)
            pairs.append((plain, guessed))
        _verdict(pairs)
    return 0


def _show(session: Session, quiet: bool) -> None:
    """Stream one answer with the origin of each token."""
    from localspec.cli.provenance import AnswerPrinter, legend
    from localspec.engine.records import Finished, RoundFinished
    from localspec.reports.answer import summary_line

    if quiet:
        return
    print(legend(sys.stdout))
    printer = AnswerPrinter(sys.stdout, show_draft=True)
    for event in session.generate(_request(_DRAFTER)):
        if isinstance(event, RoundFinished):
            printer.write(event.tokens)
        elif isinstance(event, Finished):
            printer.write(event.tail)
            printer.end()
            print(f"\n{summary_line(event.stats)}")


def _answer(session: Session, drafter: str) -> Finished:
    for _ in session.generate(_request(drafter)):
        pass
    assert session.finished is not None
    return session.finished


def _request(drafter: str) -> GenerationRequest:
    from localspec.engine.settings import GenerationRequest, SamplerSettings, SpeculationSettings
    from localspec.engine.templates.chat_template import Message

    return GenerationRequest(
        (Message("user", PROMPT),),
        sampler=SamplerSettings(temperature=0),
        speculation=SpeculationSettings(drafter),
        max_tokens=TOKENS,
        keep_cache=False,
    )


def _verdict(pairs: list[tuple[Finished, Finished]]) -> None:
    """What was measured, whichever way it went."""
    rates = [
        (plain.stats.tokens_per_second or 0.0, guessed.stats.tokens_per_second or 0.0)
        for plain, guessed in pairs
    ]
    plain, guessed = sorted(rates, key=lambda rate: rate[1] / rate[0])[len(rates) // 2]
    ratio = guessed / plain
    same = all(a.tokens == b.tokens for a, b in pairs)
    print(f"plain {plain:.1f} tokens/s, with lookup {guessed:.1f} tokens/s: {ratio:.2f}x")
    print(f"(the middle one of {len(rates)} pairs, one after the other in turn)")
    print(
        "the text was the same both times"
        if same
        else "the texts forked (a near-tie, or a bug): try `localspec audit`"
    )
    if ratio < 1.03:
        print("guessing does not pay here: checking several tokens at once is not cheap enough")


def _say(line: str) -> None:
    print(line)


def _nothing(line: str) -> None:
    pass
