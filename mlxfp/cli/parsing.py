"""What all commands share: how they are added and described, how they print, and how MLX is started."""

import sys
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Any

Commands = Any  # argparse's _SubParsersAction: what a command is added to


def add_command(commands: Commands, name: str, run: Callable[[Any], int], *, about: str, example: str) -> ArgumentParser:
    """Add a command, and return its parser, to add arguments to; `run` takes the parsed arguments and returns the exit code.

    >>> parser = ArgumentParser()
    >>> greet = add_command(parser.add_subparsers(), "greet", lambda options: len(options.name), about="Greet.", example="mlxfp greet you")
    >>> _ = greet.add_argument("name")
    >>> options = parser.parse_args(["greet", "you"])
    >>> options.run(options)
    3
    """
    command = _described(commands, name, about, example)
    command.set_defaults(run=run)
    return command


def add_group(commands: Commands, name: str, *, about: str, example: str) -> Commands:
    """Add a group of commands, such as `config` in `mlxfp config show`."""
    return _described(commands, name, about, example).add_subparsers(metavar="COMMAND", required=True, title="commands")


def _described(commands: Commands, name: str, about: str, example: str) -> ArgumentParser:
    made: ArgumentParser = commands.add_parser(
        name, help=about, description=about, epilog=show_example(example), formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False
    )
    return made


def show_example(example: str) -> str:
    """Format an example, or several on separate lines, for the end of a command's help."""
    return "example:\n" + "\n".join(f"  {line}" for line in example.splitlines())


def say(text: str) -> None:
    """Print to standard output and flush, so that the order with standard error is kept, also in a file."""
    print(text, flush=True)  # noqa: T201  # a command prints


def warn(text: str) -> None:
    """Print to standard error."""
    print(f"mlxfp: {text}", file=sys.stderr)  # noqa: T201  # the same


def start_mlx() -> tuple[str, ...]:
    """Make MLX use a fast BLAS, before anything imports it; return warnings if that is not possible.

    >>> start_mlx()
    ()
    """
    from mlxfp.runtime import use_fast_blas

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use_fast_blas()
    return tuple(str(each.message) for each in caught)
