"""What all commands share: how they are added and described, how they print, and how MLX is started."""

import sys
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from textwrap import indent
from typing import Any

Commands = Any  # argparse's _SubParsersAction: what a command is added to
SUBCOMMANDS: dict[str, Any] = {"metavar": "COMMAND", "required": True, "title": "commands"}


def add_command(commands: Commands, name: str, run: Callable[[Any], int], *, example: str) -> ArgumentParser:
    """Add a command, and return its parser, to add arguments to.

    `run` takes the parsed arguments and returns the exit code; its docstring is the help of the command.
    """
    command: ArgumentParser = commands.add_parser(name, help=run.__doc__, **described(run.__doc__ or "", example))
    command.set_defaults(run=run)
    return command


def add_group(commands: Commands, name: str, *, about: str, example: str) -> Commands:
    """Add a group of commands, such as `config` in `mlxfp config show`."""
    return commands.add_parser(name, help=about, **described(about, example)).add_subparsers(**SUBCOMMANDS)


def described(about: str, example: str) -> dict[str, Any]:
    """Return the options of a parser with this description, and an example, or several on separate lines, at the end of its help."""
    epilog = "example:\n" + indent(example, "  ")
    return {"description": about, "epilog": epilog, "formatter_class": RawDescriptionHelpFormatter, "allow_abbrev": False}


def say(text: str) -> None:
    """Print to standard output and flush, so that the order with standard error is kept, also in a file."""
    print(text, flush=True)  # noqa: T201  # a command prints


def warn(text: str) -> None:
    """Print to standard error."""
    print(f"mlxfp: {text}", file=sys.stderr)  # noqa: T201  # the same


def start_mlx() -> tuple[str, ...]:
    """Make MLX use a fast BLAS, before anything imports it; return warnings if that is not possible."""
    from mlxfp.runtime import use_fast_blas

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use_fast_blas()
    return tuple(str(each.message) for each in caught)
