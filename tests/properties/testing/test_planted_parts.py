"""The default call of `laws.check` or `audit.examine` finds planted bugs, and raises nothing for correct but unusual parts."""

from collections.abc import Callable
from typing import Any

import pytest

import mlxfp as fp
from mlxfp.errors import ArgumentError
from mlxfp.testing import audit, laws
from tests.properties.testing.planted_parts import BUGS, CORRECT, CORRECT_LOADERS, LOADER_BUGS


@pytest.mark.parametrize("check", BUGS.values(), ids=BUGS)
def test_case_b_a_planted_bug_breaks_a_law(check: Callable[[], Any]):
    with pytest.raises((AssertionError, ArgumentError)):
        check()


@pytest.mark.parametrize("check", CORRECT.values(), ids=CORRECT)
def test_a_correct_but_unusual_part_keeps_all_laws(check: Callable[[], Any]):
    check()


@pytest.mark.parametrize(("loader", "stated"), LOADER_BUGS.values(), ids=LOADER_BUGS)
def test_a_planted_bug_of_a_loader_is_a_finding(loader: audit.Loader, stated: dict[str, bool]):
    assert audit.examine(loader, **stated)


@pytest.mark.parametrize(("loader", "stated"), CORRECT_LOADERS.values(), ids=CORRECT_LOADERS)
def test_a_correct_but_unusual_loader_gives_no_finding(loader: audit.Loader, stated: dict[str, bool]):
    assert audit.examine(loader, **stated) == ()


@pytest.mark.parametrize("part", [fp.pipe(fp.from_examples([{"x": 1}]), fp.repeat(None)), fp.repeat(None)], ids=["dataset", "stage"])
def test_endless_data_is_refused_with_a_call_that_limits_it(part: Any):
    with pytest.raises(ArgumentError, match=r"endless.*take"):
        laws.check(part)
