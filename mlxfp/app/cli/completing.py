"""`mlxfp completion`: what a shell needs to complete commands, options, presets and the options of configurations."""

from argparse import ArgumentParser, Namespace

from mlxfp.app.cli.parsing import Commands, add_command, say
from mlxfp.support.errors import MissingExtraError
from mlxfp.support.optional import optional

_SHELLS = ("bash", "zsh", "fish")


def add(commands: Commands) -> None:
    """Add `completion`."""
    command = add_command(commands, "completion", _completion, example="mlxfp completion bash > mlxfp.bash\nmlxfp completion fish")
    command.add_argument("shell", choices=_SHELLS, help="the shell to print it for")


def _completion(options: Namespace) -> int:
    """Print what makes a shell complete the command mlxfp with the Tab key, for its start file."""
    argcomplete = optional("argcomplete", extra="completion", needed_by="mlxfp completion")
    say(argcomplete.shellcode(["mlxfp"], shell=options.shell).strip())
    return 0


def complete(parser: ArgumentParser) -> None:
    """Write what may come next, and end the process: a shell that completes has started it."""
    try:
        argcomplete = optional("argcomplete", extra="completion", needed_by="completing mlxfp")
    except MissingExtraError:  # a shell shows no errors: it completes nothing
        raise SystemExit(1) from None
    argcomplete.autocomplete(parser)
