"""`localspec completion`: the script that completes names in a shell."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from localspec.ground.errors import LocalspecError
from localspec.ground.terminal import is_terminal

_INSTALL = {
    "bash": "localspec completion bash > ~/.local/share/bash-completion/completions/localspec",
    "zsh": 'localspec completion zsh > "${fpath[1]}/_localspec"',
    "fish": "localspec completion fish > ~/.config/fish/completions/localspec.fish",
    "powershell": "localspec completion powershell >> $PROFILE",
}
SHELLS = tuple(_INSTALL)
_HELP = "\n".join(
    (
        "Print the completion script for SHELL on stdout.\n\n\b",
        *(f"{shell:10}  {command}" for shell, command in _INSTALL.items()),
    )
)


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the completion script."""
    sys.stdout.write(script(shell))
    if is_terminal(sys.stdout):
        print(f"to install it: {_INSTALL[shell]}", file=sys.stderr)
    return 0


def script(shell: str) -> str:
    """The completion script of one of SHELLS."""
    from localspec.cli.main import cli

    completer = get_completion_class(shell)
    if completer is None:
        raise LocalspecError(f"this click has no completion for {shell}", "Install click 8.5 or later")
    made = completer(cli, {}, "localspec", "_LOCALSPEC_COMPLETE")
    # Not `source()`: bash's looks for the bash of this machine, and the script may be for another one.
    text: str = made.source_template % made.source_vars()
    return text.rstrip() + "\n"
