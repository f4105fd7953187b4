"""`localspec audit`: is the output really the target's, on this machine?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from localspec.audit.records import CHECKS
from localspec.cli import options as cli_options
from localspec.cli.streams import print_json
from localspec.ground.errors import InvalidInput
from localspec.ground.terminal import is_terminal, one_line

if TYPE_CHECKING:
    from localspec.session import Session


@click.command()
@cli_options.pair_argument
@cli_options.pair_options
@click.option("--quick", is_flag=True, help="Under two minutes: fewer texts, drafters and lengths.")
@click.option(
    "--only", metavar="A,B", help=f"Only these checks, and nothing is stored: {', '.join(CHECKS)}.",
)
@cli_options.output_options
def audit(pair: str, **values: Any) -> int:
    """Compare PAIR's output with and without drafts, and its sampling with the target's distribution.

    Greedy texts, seeded texts, penalties and stops must be the plain ones. Where they part, the target is asked again
    at that place under both batch shapes: a near-tie is reported as such, anything else is a bug (exit code 7). The
    result is stored with the pair, this build and this device. A whole audit writes about 7000 tokens: with a
    1.5B target on two processor cores that takes 15 to 22 minutes.
    """
    from localspec.audit.report import result_json, summary, text_report
    from localspec.audit.run import Audit
    from localspec.audit.subject import Subject
    from localspec.session import open_session, verdicts

    only = _checks(values["only"])
    load = cli_options.load_options(values | {"no_draft": False, "drafter": "auto", "draft_length": None})
    say = _say(values)
    say("loading")
    with open_session(pair, load) as session:
        settings = session.settings
        subject = Subject(session.client, settings.masked_ids, settings.shared_rows)
        check = Audit(
            subject,
            has_draft=settings.draft is not None,
            raw=not session.info.has_template,
            quick=values["quick"],
            speculates=not session.info.speculation_off,
            only=only,
            say=say,
        )
        result = check.run()
        about = _about(session)
    say("")
    if values["as_json"]:
        print_json(result_json(result, about))
    else:
        print(text_report(result, about), end="")
    if result.complete and not only:
        verdicts.store(settings.target, settings.draft, str(about["device"]), audit=summary(result))
    return 0 if result.passed else 7


def _checks(text: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    wrong = [name for name in names if name not in CHECKS]
    if wrong:
        raise InvalidInput(f"no check named {one_line(wrong[0])!r}", f"There are: {', '.join(CHECKS)}")
    return names


def _about(session: Session) -> dict[str, Any]:
    from localspec.engine.build import engine_build

    files = session.settings
    return {
        "target": str(files.target),
        "draft": str(files.draft) if files.draft is not None else None,
        "build": engine_build(),
        "device": files.device,
    }


def _say(values: dict[str, Any]) -> Any:
    """What is being checked, on stderr: one line that is rewritten, on terminals only."""
    if values["quiet"] or not is_terminal(sys.stderr):
        return lambda text: None

    def say(text: str) -> None:
        print(f"\r\x1b[K{one_line(text, 100)}", end="", file=sys.stderr, flush=True)

    return say
