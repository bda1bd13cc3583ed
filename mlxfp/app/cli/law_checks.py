"""`mlxfp laws`: the laws that a part of your own holds, and the smallest case that breaks one."""

from argparse import Namespace
from inspect import Parameter, signature
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from mlxfp.app.cli.parsing import Commands, add_command, say, start_mlx, warn
from mlxfp.support.errors import ArgumentError

if TYPE_CHECKING:
    from mlxfp.testing import laws

_BROKEN = 1  # the exit code


def add(commands: Commands) -> None:
    """Add `laws`."""
    command = add_command(commands, "laws", _laws, example="mlxfp laws parcels:Describe\nmlxfp laws my_package.collators:for_laws")
    command.add_argument(
        "part", metavar="MODULE:NAME", help="a stage, source or dataset, a laws.Subject, or a function without arguments that makes one"
    )


def _laws(options: Namespace) -> int:
    """Check the laws of a part, and print the smallest case that breaks one. MODULE is imported from this folder, or as a package."""
    module, _, name = options.part.partition(":")
    if not module or not name:
        raise ArgumentError(f"mlxfp laws needs MODULE:NAME, as in parcels:Describe, got {options.part!r}.")
    for problem in start_mlx():
        warn(problem)
    from hypothesis import settings

    from mlxfp.app.runs.own_parts import import_part
    from mlxfp.testing import laws

    part = _made(import_part(options.part, Path.cwd(), asked_by="mlxfp laws"))
    try:
        selected = laws.laws_of(part)
    except ArgumentError as error:
        error.add_note(f"On the command line: name a function that returns laws.Subject(part, ...) with these arguments, not {name}.")
        raise
    subject = selected[0].subject
    say(f"{options.part}: {getattr(subject.part, '__name__', None) or repr(subject.part)}")
    before = settings.get_current_profile_name()
    settings.register_profile("mlxfp laws", settings.get_profile(before), derandomize=True)  # the same cases each time
    settings.load_profile("mlxfp laws")
    try:
        found = [reason for law in selected if (reason := _told(law)) is not None]
    finally:
        settings.load_profile(before)
    broken = len(found)
    if subject.schema is None and "schema" in subject.family.takes and any(isinstance(reason, KeyError) for reason in found):
        say(f"The rows have any columns. If {name} needs some, name a function that returns laws.Subject(part, schema=...), not {name}.")
    say(f"{len(selected)} laws, {broken} broken." if broken else f"{len(selected)} laws, all held.")
    return _BROKEN if broken else 0


def _told(law: "laws.Law") -> Exception | None:
    """Check a law and say how it went; return what broke it."""
    from hypothesis.errors import HypothesisException

    found: Exception | None = None
    try:
        law()
    except Exception as error:  # whatever the part raises breaks the law that is checked
        if isinstance(error.__cause__, HypothesisException):  # too few cases fit the part: no law is at fault
            raise
        found = error
    say(f"  {'held' if found is None else 'BROKEN':<6}  {law.name}: {law.said}")
    if found is not None:
        kind = "" if isinstance(found, AssertionError) else f"{type(found).__name__}: "
        say(indent("\n".join([f"{kind}{found}", *getattr(found, "__notes__", ())]), " " * 10))
    return found


def _made(value: Any) -> Any:
    """Return a part, or what a function or class that needs no arguments makes."""
    return value() if _makes(value) else value


def _makes(value: Any) -> bool:
    from mlxfp import Dataset, Source, Stage

    if not callable(value) or isinstance(value, Dataset | Source | Stage):
        return False
    needed = (one for one in signature(value).parameters.values() if one.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD))
    return all(one.default is not Parameter.empty for one in needed)
