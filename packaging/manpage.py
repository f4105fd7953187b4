"""localspec(1), from the command tree: what `--help` says, as a manual page."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator

import click

SECTIONS = {
    "EXIT STATUS": """0 it worked; 1 a bug; 2 a wrong option, name or file; 3 the draft does not go with the target;
4 it does not fit into memory; 5 download, hub or full disk; 6 the engine died;
7 audit, verify or doctor found a problem;
130 interrupted; 143 terminated.""",
    "ENVIRONMENT": """Every option OPTION is also the variable LOCALSPEC_OPTION, in capitals and with _ for -; the
option comes first, then the variable, then the configuration file. NO_COLOR and FORCE_COLOR decide about colours.
HF_TOKEN, HF_HUB_CACHE, HF_HUB_OFFLINE and the other variables of the Hugging Face client are heeded.""",
    "FILES": """localspec config path names the configuration file, localspec config show what it may hold. Logs and
measured profiles are in the state folder, pairs and conversations in the data folder, model files in the Hugging Face
cache.""",
}


def manual(cli: click.Group, version: str, date: str) -> str:
    """The page as roff. `date` is YYYY-MM-DD."""
    context = click.Context(cli, info_name="localspec")
    lines = [
        f'.TH LOCALSPEC 1 "{date}" "localspec {_plain(version)}" "User Commands"',
        ".SH NAME",
        "localspec \\- run a big GGUF model sooner, by speculative decoding",
        ".SH SYNOPSIS",
        ".B localspec",
        "[\\fICOMMAND\\fR] [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]",
        ".SH DESCRIPTION",
        *_paragraphs(cli.help or ""),
        ".PP",
        "Without a command, in a terminal, it opens the chat.",
        ".SH COMMANDS",
    ]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is not None:
            lines += _command(click.Context(command, info_name=name, parent=context))
    for title, text in SECTIONS.items():
        lines += [f".SH {title}", *_paragraphs(text)]
    return "\n".join(lines) + "\n"


def _command(context: click.Context) -> Iterator[str]:
    command = context.command
    yield f".SS {_plain(' '.join(context.command_path.split()))}"
    usage = " ".join(piece for piece in command.collect_usage_pieces(context))
    yield f"\\fB{_plain(context.command_path)}\\fR {_plain(usage)}"
    yield ".PP"
    yield from _paragraphs(command.help or command.short_help or "")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option) and parameter.name != "help":
            yield ".TP"
            yield f".B {_plain(record[0])}"
            yield from _paragraphs(record[1] or "\\&")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _command(click.Context(inner, info_name=name, parent=context))


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.replace("\f", "").strip())):
        if number:
            yield ".PP"
        if paragraph.lstrip(" ").startswith("\b"):  # click's mark of a paragraph whose lines stay lines
            yield ".nf"
            yield from (_plain(line.strip()) for line in paragraph.splitlines()[1:])
            yield ".fi"
        else:
            # A sentence begins a line, and no line is long: what roff's checkers want to see.
            sentences = re.sub(r"(?<=[.?!:]) +(?=[A-Z0-9])", "\n", " ".join(paragraph.split()))
            for sentence in sentences.splitlines():
                yield from map(_plain, textwrap.wrap(sentence, 72, break_on_hyphens=False))


def _plain(text: str) -> str:
    """Text that roff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return f"\\&{text}" if text[:1] in (".", "'") else text


if __name__ == "__main__":
    from localspec.cli.main import cli

    sys.stdout.write(manual(cli, sys.argv[1], sys.argv[2]))
