"""The table of commands, and how mistakes of a user are reported: a sentence and an exit code, never a traceback."""

import os
import sys
import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from mlxfp import __version__
from mlxfp.app.cli import (
    checking,
    completing,
    configuring,
    data_sets,
    inspecting,
    law_checks,
    reporting,
    running,
    starting,
    submitting,
    tuning,
)
from mlxfp.app.cli.parsing import SUBCOMMANDS, described, warn
from mlxfp.app.config.classes import meant
from mlxfp.support.errors import MlxfpError
from mlxfp.support.progress import lines_in_logs

# The files whose `add` adds commands; the order is that of the help.
GROUPS = (starting, running, tuning, reporting, inspecting, configuring, data_sets, submitting, law_checks, checking, completing)

_ABOUT = "Competitions and training on MLX, from configuration files."
_EXAMPLE = "mlxfp config presets\nmlxfp config show titanic training.epochs=3\nmlxfp doctor"
_FAILED, _MISUSED, _INTERRUPTED, _CLOSED = 1, 2, 130, 141  # as in shells: 128 plus the number of the signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, with the arguments of the process unless some are given, and return the exit code.

    0: done; 1: failed, and standard error says why; 2: unknown command or option; 130: interrupted; 141: standard output was closed.
    With MLXFP_DEBUG=1 in the environment, tracebacks are shown.
    """
    try:
        options = parse(arguments)
    except SystemExit as end:  # argparse has printed the help, or what is wrong with the usage
        return end.code if isinstance(end.code, int) else _MISUSED
    try:
        with lines_in_logs():
            code: int = options.run(options)
        sys.stdout.flush()  # raises here for a closed pipe, and not when the process ends
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for buffered output when the process ends
        return _CLOSED
    except KeyboardInterrupt as error:
        return _report(error, "interrupted", _INTERRUPTED)
    except (MlxfpError, OSError) as error:
        return _report(error, "\n".join([str(error), *getattr(error, "__notes__", ())]), _FAILED)
    return code


def parse(arguments: Sequence[str] | None = None) -> Namespace:
    """Parse the arguments of a command; options may come before, between and after `key=value`. Exits as argparse does."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # set by the shell functions of argcomplete
        completing.complete(parser)
    options, rest = parser.parse_known_args(arguments)
    # argparse takes all positional arguments at once: those after an option are left over.
    taken = [each for each in rest if "overrides" in options and not each.startswith("-")]
    if len(taken) < len(rest):
        left = [each for each in rest if each not in taken]
        pairs = [each.lstrip("-").partition("=") for each in left if each.startswith("-")]
        example = next((f"{path}={value or 'VALUE'}" for name, _, value in pairs for path in meant(name)), "training.epochs=3")
        hint = f". Options begin with two dashes, key=value with none, as in {example}" if "overrides" in options else ""
        parser.error(f"unrecognized arguments: {' '.join(left)}{hint}")
    if taken:
        options.overrides = [*options.overrides, *taken]
    return options


def _parser() -> ArgumentParser:
    parser = ArgumentParser("mlxfp", **described(_ABOUT, _EXAMPLE))
    parser.add_argument("--version", action="version", version=f"mlxfp {__version__}")
    commands = parser.add_subparsers(**SUBCOMMANDS)
    for group in GROUPS:
        group.add(commands)
    return parser


def _report(error: BaseException, message: str, code: int) -> int:
    if os.environ.get("MLXFP_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    warn(message)
    return code
