"""Decorator that creates one pytest test per law of your sources, stages, collators and other parts."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mlxfp.core.nodes import brief
from mlxfp.support.checks import check_choice, check_text
from mlxfp.support.errors import ArgumentError
from mlxfp.support.optional import optional
from mlxfp.testing.laws.checking import laws_of

if TYPE_CHECKING:
    import pytest


def parametrize_with_laws(parts: Iterable[Any], *, expected_failures: Mapping[str, str] = {}) -> "pytest.MarkDecorator":
    """Parametrize a test with the laws of parts (sources, stages, collators, ...). Each law becomes one test.

    A test has a name such as `test_laws[batch(size=2)-assert_resumable]`. If a part needs arguments of `laws.check`, wrap the part in
    `laws.Subject`.

    `expected_failures` maps the name of a broken law to the reason. The tests of this law are expected to fail for every part. If a part
    obeys the law, its test fails. `pytest_plugins = ["mlxfp.testing.pytest_plugin"]` in conftest.py marks the law tests (`pytest -m
    law`) and lists the broken laws after the run.

    Raises `ArgumentError` if `parts` is empty, and `UnknownNameError` if no part has a law named in `expected_failures`.

    >>> import mlxfp as fp
    >>> @parametrize_with_laws([fp.batch(2), fp.from_examples([{"x": 1}, {"x": 2}])])
    ... def test_laws(law):
    ...     law()
    >>> [mark.name for mark in test_laws.pytestmark]
    ['parametrize']

    See also: `laws.laws_of`, which returns the laws without pytest.
    """
    module = optional("pytest", extra="testing", needed_by="testing.parametrize_with_laws")
    laws = [law for part in parts for law in laws_of(part)]
    if not laws:
        raise ArgumentError("parametrize_with_laws needs at least one part, got none.")
    for name in expected_failures:
        check_choice({law.name for law in laws}, **{"law of these parts": name})
    check_text(**{f"expected_failures[{law!r}]": reason for law, reason in expected_failures.items()})
    fails: dict[str, Any] = {name: module.mark.xfail(reason=reason, strict=True) for name, reason in expected_failures.items()}
    cases = [module.param(law, id=f"{brief(law.subject.part)}-{law.name}", marks=fails.get(law.name, ())) for law in laws]
    marked: pytest.MarkDecorator = module.mark.parametrize("law", cases)
    return marked
