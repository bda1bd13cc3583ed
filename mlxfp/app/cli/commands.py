"""Entry point of the command line. A user error prints a message without a traceback."""

import os
import sys
import traceback
import warnings
from argparse import Namespace
from collections.abc import Sequence

from mlxfp import __version__
from mlxfp.app.cli import (
    checking,
    configuring,
    data_sets,
    inspecting,
    reporting,
    running,
    starting,
    submitting,
    tuning,
)
from mlxfp.app.cli.parsing import SUBCOMMANDS, Parser, described, warn, warn_once
from mlxfp.app.config.classes import meant
from mlxfp.support.errors import MlxfpError
from mlxfp.support.progress import lines_in_logs
from mlxfp.support.terminal import one_line

# Modules whose `add` function adds commands. The help lists commands in this order.
GROUPS = (starting, running, tuning, reporting, inspecting, configuring, data_sets, submitting, checking)

_ABOUT = "Competitions and training on MLX, from configuration files."
_EXAMPLE = "mlxfp config presets\nmlxfp config show titanic training.epochs=3\nmlxfp doctor"
_FAILED, _MISUSED, _INTERRUPTED, _CLOSED = 1, 2, 130, 141  # exit codes; as in shells, 130 and 141 are 128 plus a signal number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code. `arguments` defaults to the arguments of the process.

    Exit codes: 0 success, 1 failure with a message on standard error, 2 unknown command or option, 130 interrupted,
    141 standard output closed. Tracebacks are shown if the environment has MLXFP_DEBUG=1.
    """
    try:
        options = parse(arguments)
    except SystemExit as end:  # argparse has printed the help or the usage error
        return end.code if isinstance(end.code, int) else _MISUSED
    try:
        show = warn_once()  # without the line of source code that Python adds
        with lines_in_logs(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: show(one_line(str(message)))
            code: int = options.run(options)
        sys.stdout.flush()  # flush now, because a BrokenPipeError at process exit could not be caught
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard the output that is still buffered at process exit
        return _CLOSED
    except KeyboardInterrupt as error:
        return _report(error, "interrupted", _INTERRUPTED)
    except (MlxfpError, OSError) as error:
        return _report(error, "\n".join([str(error), *getattr(error, "__notes__", ())]), _FAILED)
    return code


def parse(arguments: Sequence[str] | None = None) -> Namespace:
    """Parse the arguments of a command. Options may stand before, between and after `key=value` pairs.

    A usage error exits the process, as in argparse.
    """
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    # argparse consumes all positional arguments at once: positional arguments after an option remain in `rest`.
    extra_overrides = [word for word in rest if "overrides" in options and not word.startswith("-")]
    if len(extra_overrides) < len(rest):
        unrecognized = [word for word in rest if word not in extra_overrides]
        pairs = [word.lstrip("-").partition("=") for word in unrecognized if word.startswith("-")]
        example = next((f"{path}={value or 'VALUE'}" for name, _, value in pairs for path in meant(name)), None)
        near = next((text for word in unrecognized if word.startswith("--") and (text := options.parser.near(word))), "")
        hint = f" Options begin with two dashes, key=value with none, as in {example or 'training.epochs=3'}"
        advice = near if near and example is None else hint if "overrides" in options else ""
        parser.error(f"unrecognized arguments: {' '.join(unrecognized)}{'.' if advice else ''}{advice}")
    if extra_overrides:
        options.overrides = [*options.overrides, *extra_overrides]
    return options


def _parser() -> Parser:
    parser = Parser("mlxfp", **described(_ABOUT, _EXAMPLE))
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
