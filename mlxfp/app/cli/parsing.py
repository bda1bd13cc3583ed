"""Shared functions of the commands: parsers, printing, and starting MLX."""

import sys
import warnings
from argparse import Action, ArgumentError, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from inspect import cleandoc
from textwrap import indent
from typing import Any

from mlxfp.support.atomic_files import first_on_machine
from mlxfp.support.blas import threads_by_load
from mlxfp.support.errors import suggest

Commands = Any  # argparse's private class _SubParsersAction
_FOREIGN = {"train": "run", "fit": "run", "init": "new", "create": "new"}  # commands of other programs
SUBCOMMANDS: dict[str, Any] = {"metavar": "COMMAND", "required": True, "title": "commands"}


class Parser(ArgumentParser):
    """An `ArgumentParser` that suggests the most similar name after an unknown command or choice. Option types are int and float."""

    def _check_value(self, action: Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except ArgumentError as error:
            near = suggest(_FOREIGN.get(value, value), action.choices or ())
            error.message += f".{near}" if near else ""
            raise

    def _get_value(self, action: Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except ArgumentError as error:
            kind = "an integer" if action.type is int else "a number"
            error.message = f"expected {kind}, got {arg_string!r}. Give a number, as in {action.option_strings[0]} 2"
            raise

    def near(self, option: str) -> str:
        """Return " Did you mean '--x'?" with the option that is most similar to an unknown option, or an empty string."""
        return suggest(option.partition("=")[0], self._option_string_actions)


def add_command(commands: Commands, name: str, run: Callable[[Any], int], *, example: str) -> ArgumentParser:
    """Add a command and return the parser of the command.

    `run` takes the parsed arguments and returns the exit code. The docstring of `run` is the help of the command.
    """
    about = cleandoc(run.__doc__ or "")
    command: Parser = commands.add_parser(name, help=about, **described(about, example))
    command.set_defaults(run=run, parser=command)
    return command


def add_group(commands: Commands, name: str, *, about: str, example: str) -> Commands:
    """Add a group of commands, such as `config` in `mlxfp config show`."""
    return commands.add_parser(name, help=about, **described(about, example)).add_subparsers(**SUBCOMMANDS)


def described(about: str, example: str) -> dict[str, Any]:
    """Return the arguments for an `ArgumentParser` whose help shows a description and ends with example lines."""
    epilog = "example:\n" + indent(example, "  ")
    return {"description": about, "epilog": epilog, "formatter_class": RawDescriptionHelpFormatter, "allow_abbrev": False}


def say(text: str) -> None:
    """Print to standard output and flush. Flushing keeps the order relative to standard error, also in a log file."""
    print(text, flush=True)  # noqa: T201


def warn(text: str) -> None:
    """Print to standard error."""
    print(f"mlxfp: {text}", file=sys.stderr)  # noqa: T201


def warn_once() -> Callable[[str], None]:
    """Return a function that prints a text to standard error, but equal texts only once."""
    printed = set[str]()

    def show(text: str) -> None:
        if text not in printed:
            warn(text)
        printed.add(text)

    return show


def start_mlx() -> tuple[str, ...]:
    """Make MLX use a fast BLAS; call before the first import of MLX. Return warnings about a slow BLAS, or about busy cores."""
    from mlxfp.runtime import use_fast_blas

    # The function counts busy cores here, because `use_fast_blas` warns only once on each machine.
    threads, busy = (None, None) if "mlx.core" in sys.modules else threads_by_load()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use_fast_blas(threads=threads)
    slow = tuple(str(warning.message) for warning in caught)
    return slow or (() if busy is None else (busy,))


def start_mlx_quietly() -> None:
    """Make MLX use a fast BLAS. If no fast BLAS is usable, or if cores are busy, print a warning, but only once per machine.

    The command `mlxfp doctor` prints the same warning every time.
    """
    for problem in start_mlx():
        if first_on_machine(problem):
            warn(f"{problem} This warning is printed once. `mlxfp doctor` shows the state of the machine.")
