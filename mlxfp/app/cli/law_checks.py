"""The command `mlxfp laws`: check a user-defined stage, source or dataset with property-based tests (laws)."""

from argparse import Namespace
from inspect import Parameter, signature
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from mlxfp.app.cli.parsing import Commands, add_command, say, start_mlx_quietly
from mlxfp.support.errors import ArgumentError

if TYPE_CHECKING:
    from mlxfp.testing import laws

_BROKEN = 1  # exit code


def add(commands: Commands) -> None:
    """Add `laws`."""
    command = add_command(commands, "laws", _laws, example="mlxfp laws parcels:Describe\nmlxfp laws my_package.collators:for_laws")
    command.add_argument(
        "part",
        metavar="MODULE:NAME",
        help="a stage, source, dataset or laws.Subject, or a function without arguments that returns such an object",
    )


def _laws(options: Namespace) -> int:
    """Check the laws of a stage, source or dataset, and print the smallest failing case.

    The module of the object is imported from the current folder or from an installed package.
    """
    module, _, name = options.part.partition(":")
    if not module or not name:
        raise ArgumentError(
            f"mlxfp laws needs MODULE:NAME, as in parcels:Describe, got {options.part!r}. "
            "Give a module and the name of an object in the module."
        )
    start_mlx_quietly()
    from hypothesis import settings

    from mlxfp.app.runs.own_parts import import_part
    from mlxfp.testing import laws

    named = import_part(options.part, Path.cwd(), asked_by="mlxfp laws")
    part = named() if _is_factory(named) else named
    try:
        selected = laws.laws_of(part)
    except ArgumentError as error:
        error.add_note(
            f"On the command line, instead of {name}, give a function that returns laws.Subject(part, ...) with these arguments."
        )
        raise
    subject = selected[0].subject
    say(f"{options.part}: {getattr(subject.part, '__name__', None) or repr(subject.part)}")
    before = settings.get_current_profile_name()
    settings.register_profile("mlxfp laws", settings.get_profile(before), derandomize=True)  # generate the same cases in every run
    settings.load_profile("mlxfp laws")
    try:
        failures = [reason for law in selected if (reason := _checked(law)) is not None]
    finally:
        settings.load_profile(before)
    broken = len(failures)
    if subject.schema is None and "schema" in subject.family.takes and any(isinstance(reason, KeyError) for reason in failures):
        say(
            f"The generated rows have random columns. If {name} needs columns, give a function that returns laws.Subject(part, schema=...)."
        )
    for coverage in dict.fromkeys(law.coverage for law in selected if law.coverage):
        say(coverage)
    say(f"{len(selected)} laws, {broken} broken." if broken else f"{len(selected)} laws, none broken.")
    return _BROKEN if broken else 0


def _checked(law: "laws.Law") -> Exception | None:
    """Check a law, which is a property-based test, and print the result. Return the exception if the law is broken."""
    from hypothesis.errors import HypothesisException

    failure: Exception | None = None
    try:
        law()
    except Exception as error:  # the law is broken if the tested object raises any exception
        if isinstance(error.__cause__, HypothesisException):  # too few generated cases were valid: the law is not checked
            raise
        failure = error
    say(f"  {'held' if failure is None else 'BROKEN':<6}  {law.name}: {law.statement}")
    if failure is not None:
        kind = "" if isinstance(failure, AssertionError) else f"{type(failure).__name__}: "
        say(indent("\n".join([f"{kind}{failure}", *getattr(failure, "__notes__", ())]), " " * 10))
    return failure


def _is_factory(value: Any) -> bool:
    from mlxfp import Dataset, Source, Stage

    if not callable(value) or isinstance(value, Dataset | Source | Stage):
        return False
    needed = (one for one in signature(value).parameters.values() if one.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD))
    return all(one.default is not Parameter.empty for one in needed)
