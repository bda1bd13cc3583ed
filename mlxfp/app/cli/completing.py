"""The command `mlxfp completion`: shell completion of commands, options, presets and configuration keys."""

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
    """Print the shell code for completing mlxfp commands with the Tab key. Put the code into the start file of the shell."""
    argcomplete = optional("argcomplete", extra="completion", needed_by="mlxfp completion")
    say(argcomplete.shellcode(["mlxfp"], shell=options.shell).strip())
    return 0


def complete(parser: ArgumentParser) -> None:
    """Print the possible completions and exit the process, if a shell asks for completions."""
    try:
        argcomplete = optional("argcomplete", extra="completion", needed_by="completing mlxfp")
    except MissingExtraError:  # argcomplete is not installed: exit silently, because shells hide error messages during completion
        raise SystemExit(1) from None
    argcomplete.autocomplete(parser)
