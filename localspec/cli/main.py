"""The command tree, and the one map from errors to messages and exit codes.

Each command is a module of its own that is imported when it runs; the help page needs none of them.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from localspec import __version__
from localspec.cli import streams
from localspec.cli.settings_file import FileDefaults
from localspec.cli.signals import Terminated, end_politely_on_sigterm, send_lost_signals_again
from localspec.cli.start import raise_on_interrupt
from localspec.ground.errors import DISK_FULL, LocalspecError
from localspec.ground.terminal import is_terminal, one_line

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module:attribute, one line for the help page)
    "chat": ("localspec.cli.chat:chat", "Chat in the terminal, and see speculation work"),
    "run": ("localspec.cli.run:run", "Answer one prompt on stdout"),
    "replay": ("localspec.cli.replay:replay", "Show a saved conversation, without a model"),
    "check": ("localspec.cli.check:check", "Report whether a draft goes with a target"),
    "fit": ("localspec.cli.fit:fit", "Show where a pair goes in memory, and whether it fits"),
    "quantize": ("localspec.cli.quantize:quantize", "Make a smaller file of a model"),
    "draft-ladder": ("localspec.cli.draft_ladder:draft_ladder", "Compare quantizations of a draft"),
    "doctor": ("localspec.cli.doctor:doctor", "Look for problems of this machine and this build"),
    "bench": ("localspec.cli.bench:bench", "Plain against speculative, by kind of text"),
    "serve": ("localspec.cli.serve:serve", "Serve the pair to other programs over HTTP"),
    "export": ("localspec.cli.export:export", "The same pair in another engine"),
    "tune": ("localspec.cli.tune:tune", "Measure what drafts cost here, and keep it"),
    "audit": ("localspec.cli.audit:audit", "Is the output really the target's, here?"),
    "config": ("localspec.cli.config:config", "Settings that stay: show, set, unset, path"),
    "completion": ("localspec.cli.completion:completion", "The script that completes names in your shell"),
    "bug-report": ("localspec.cli.bug_report:bug_report", "What a bug report should hold, without your texts"),
    "demo": ("localspec.cli.demo:demo", "Show the main job on a small model, no hub needed"),
    "pull": ("localspec.cli.pull:pull", "Download a target and its draft, checked before the first gigabyte"),
    "list": ("localspec.cli.list:list_pairs", "The pairs on this disk"),
    "show": ("localspec.cli.show:show", "Everything known about one pair"),
    "catalog": ("localspec.cli.catalog:catalog", "What can be pulled by name"),
    "verify": ("localspec.cli.verify:verify", "Re-hash a pair's files; fetch again what is damaged"),
    "rm": ("localspec.cli.rm:rm", "Remove a pair and the files only it uses"),
    "prune": ("localspec.cli.prune:prune", "Delete unfinished downloads and contents without a name"),
    "import": (
        "localspec.cli.import_:import_models",
        "Use models of LM Studio, Ollama, llama.cpp or a folder",
    ),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used, and listed without being imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Commands from the table: none is imported to be listed."""
        if incomplete.startswith("-"):
            return super(click.Group, self).shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, n=3)
            near = f" Close: {', '.join(close)}." if close else ""
            raise click.UsageError(
                f"no command named {one_line(args[0])!r}.{near} See all: localspec --help", ctx
            ) from None


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    help="Run a big GGUF model sooner: a small draft guesses ahead, the target checks.",
)
@click.version_option(__version__, "--version", prog_name="localspec")
@click.pass_context
def cli(ctx: click.Context) -> int | None:
    """The terminal UI on a terminal, else the help and exit code 2."""
    ctx.default_map = FileDefaults()
    if ctx.invoked_subcommand is not None:
        _begin(ctx.invoked_subcommand)
        return None
    if is_terminal(sys.stdin) and is_terminal(sys.stdout):
        from localspec.cli.chat import chat

        _begin("chat")
        with chat.make_context("chat", [], parent=ctx) as chat_context:
            code: int = chat.invoke(chat_context)
        return code
    click.echo(ctx.get_help(), err=True)
    return 2


_NOT_LOGGED = frozenset({"completion", "config", "replay"})


def _begin(command: str) -> None:
    """Commands that do something have a log; it is opened when there is something to write."""
    if command not in _NOT_LOGGED:
        _invoked.append(command)
    if command in _LONG:
        from localspec.ground.logs import log, start_logging

        start_logging()
        log.info("localspec %s: %s begins", __version__, command)


_LONG = frozenset({"chat", "serve", "run", "bench", "audit", "tune", "pull"})
"""Commands whose beginning is worth a line: they may be killed."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code. Nothing below this function exits."""
    streams.prepare()
    began = time.monotonic()
    code, error = _run(sys.argv[1:] if argv is None else argv)
    fault = streams.settle()
    if fault is not None and code == 0:
        code, error = _report_unwritten(fault), fault
    if _invoked:
        _note(_invoked[-1], code, error, time.monotonic() - began)
    return code


_invoked: list[str] = []
"""The command that ran."""


def _note(command: str, code: int, error: BaseException | None, seconds: float) -> None:
    """A line in the log; for a bug also where it was."""
    from localspec.ground.logs import frames_of, log, start_logging

    start_logging()
    kind = f", {type(error).__name__}" if error is not None else ""
    log.info("localspec %s: %s ended with %d after %.1f s%s", __version__, command, code, seconds, kind)
    if code == 1 and error is not None:
        log.error("a bug:\n%s", frames_of(error))


def _run(arguments: list[str]) -> tuple[int, BaseException | None]:
    """(exit code, the error that led to it)."""
    try:
        raise_on_interrupt()
        end_politely_on_sigterm()
        send_lost_signals_again()
        result = cli.main(arguments, prog_name="localspec", standalone_mode=False)
        return (result if isinstance(result, int) else 0), None
    except LocalspecError as error:
        return _report(error, error.exit_code), error
    except click.ClickException as error:
        return _report_usage(error), error
    except (KeyboardInterrupt, click.Abort):
        streams.say("interrupted")
        return 130, None
    except Terminated:
        return 143, None
    except (BrokenPipeError, SystemExit):
        # click turns a broken pipe, and nothing else here, into an exit of its own. The reader of our stdout
        # went away, so nobody is left to tell.
        return 0, None
    except OSError as error:
        return _report_disk(error), error
    except Exception as error:
        return _report_bug(error), error


def _report(error: LocalspecError, code: int) -> int:
    streams.say(f"error: {one_line(str(error), 2000)}")
    _print_traceback(error)
    return code


def _blame_the_environment(error: click.ClickException) -> None:
    """Where a wrong value came from a variable, name that instead of an option that nobody typed."""
    if not isinstance(error, click.BadParameter) or error.param is None or error.ctx is None:
        return
    source = error.ctx.get_parameter_source(error.param.name or "")
    if source is ParameterSource.ENVIRONMENT and isinstance(error.param.envvar, str):
        error.param_hint = f"the environment variable {error.param.envvar}"


def _report_usage(error: click.ClickException) -> int:
    _blame_the_environment(error)
    hint = ""
    if (
        isinstance(error, click.UsageError)
        and error.ctx is not None
        and "--help" not in error.format_message()
    ):
        hint = f" See: {error.ctx.command_path} --help"
    text = one_line(error.format_message(), 2000)
    stop = "." if hint and text[-1:] not in (".", "!", "?") else ""
    streams.say(f"error: {text}{stop}{hint}")
    return error.exit_code if isinstance(error, click.UsageError) else 2


def _report_disk(error: OSError) -> int:
    """A file, folder or stream that cannot be used, wherever that was noticed; a full disk is 5."""
    if isinstance(error, FileNotFoundError) and not error.filename:  # only asking where we are names no file
        streams.say("error: the working folder is gone. Change to one that exists")
        return 2
    if not error.filename:
        return _report_unwritten(error) if error.errno in streams.UNWRITABLE else _report_bug(error)
    streams.say(f"error: {error.strerror}: {one_line(str(error.filename))}. Check the path and its rights")
    _print_traceback(error)
    return 5 if error.errno in DISK_FULL else 2


def _report_unwritten(error: OSError) -> int:
    """The result could not be written to where stdout goes."""
    hint = "Make room" if error.errno in DISK_FULL else "Send it somewhere else"
    streams.say(f"error: cannot write: {error.strerror}. {hint}")
    _print_traceback(error)
    return 5 if error.errno in DISK_FULL else 2


def _report_bug(error: Exception) -> int:
    name = type(error).__name__
    streams.say(f"error: {name}: {one_line(str(error))}. This is a bug in localspec")
    if wants_traceback():
        _print_traceback(error)
    else:
        streams.say("run it again with --verbose for the traceback; for a report: localspec bug-report")
    return 1


def _print_traceback(error: BaseException) -> None:
    if wants_traceback():
        streams.say("".join(traceback.format_exception(error)).rstrip())


def wants_traceback() -> bool:
    """`--verbose` anywhere on the command line, or LOCALSPEC_VERBOSE set."""
    return "--verbose" in sys.argv or bool(os.environ.get("LOCALSPEC_VERBOSE"))


if __name__ == "__main__":
    raise SystemExit(main())
