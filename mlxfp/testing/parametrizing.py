"""A test for each law of your parts, under pytest."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mlxfp.core.nodes import brief
from mlxfp.support.checks import check_choice, check_text
from mlxfp.support.errors import ArgumentError
from mlxfp.support.optional import optional
from mlxfp.testing.laws.checking import laws_of

if TYPE_CHECKING:
    import pytest

_NOTHING: Mapping[str, str] = {}


def parametrize_with_laws(parts: Iterable[Any], *, expected_failures: Mapping[str, str] = _NOTHING) -> "pytest.MarkDecorator":
    """Parametrize a test with the laws of parts, so that each law is a test with a name: `test_laws[batch(size=2)-assert_resumable]`.

    A part that needs arguments of `laws.check` is a `laws.Subject`. `expected_failures` maps the name of a law to the reason why your
    parts break it: that test is expected to fail for each of them, and fails itself where the law holds. `pytest_plugins =
    ["mlxfp.testing.pytest_plugin"]` in conftest.py marks these tests (`pytest -m law`) and lists at the end the laws that are broken.

    Raises `ArgumentError` without parts, and `UnknownNameError` for an expected failure of a law that none of them has.

    >>> import mlxfp as fp
    >>> @parametrize_with_laws([fp.batch(2), fp.from_examples([{"x": 1}, {"x": 2}])])
    ... def test_laws(law):
    ...     law()
    >>> [mark.name for mark in test_laws.pytestmark]
    ['parametrize']

    See also: `laws.laws_of`, which has the laws without pytest.
    """
    module = optional("pytest", extra="testing", needed_by="testing.parametrize_with_laws")
    found = [law for part in parts for law in laws_of(part)]
    if not found:
        raise ArgumentError("parametrize_with_laws needs at least one part, got none.")
    for name in expected_failures:
        check_choice({law.name for law in found}, **{"law of these parts": name})
    check_text(**{f"expected_failures[{law!r}]": reason for law, reason in expected_failures.items()})
    fails: dict[str, Any] = {name: module.mark.xfail(reason=reason, strict=True) for name, reason in expected_failures.items()}
    cases = [module.param(law, id=f"{brief(law.subject.part)}-{law.name}", marks=fails.get(law.name, ())) for law in found]
    marked: pytest.MarkDecorator = module.mark.parametrize("law", cases)
    return marked
