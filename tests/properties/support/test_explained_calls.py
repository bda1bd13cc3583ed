"""A call that does not fit says how the function is called; errors of the function itself stay what they are."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Literal, get_type_hints

import pytest

import mlxfp as fp
from mlxfp.evaluation import metrics
from mlxfp.support.checks import explain_call
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.training import losses


@explain_call
def add(first, *, second, third=0):
    """Add numbers."""
    return first + second + third


def test_what_fits_is_called():
    assert (add(1, second=2), add(1, second=2, third=3), add.__doc__) == (3, 6, "Add numbers.")


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((1, 2), {}, "add() takes 1 positional argument but 2 were given. "),
        ((1,), {}, "add() missing 1 required keyword-only argument: 'second'. "),
        ((1,), {"unheard": 2, "second": 1}, "add() got an unexpected keyword argument 'unheard'. "),
    ],
)
def test_a_call_that_does_not_fit_says_how_to_call(arguments, named, message):
    with pytest.raises(ArgumentTypeError) as caught:
        add(*arguments, **named)
    assert str(caught.value) == f"{message}Call it as add(first, second=...); optional arguments: third."


def test_an_error_of_the_function_itself_stays_what_it_is():
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        add(1, second="2")
    assert type(caught.value) is TypeError


def test_a_signature_is_shown_without_the_modules_of_its_types():
    @explain_call
    def cut(rows: Callable[[fp.Dataset[Any]], fp.Dataset[Any]], *, how: Literal["a.b", "c"] = "c") -> Mapping[str, Any] | None:
        return None

    shown = "(rows: Callable[[Dataset[Any]], Dataset[Any]], *, how: Literal['a.b', 'c'] = 'c') -> Mapping[str, Any] | None"
    assert str(signature(cut)) == shown
    assert get_type_hints(cut)["rows"] == Callable[[fp.Dataset[Any]], fp.Dataset[Any]]  # what programs read stays
    assert "mlxfp." not in str(signature(fp.batch))
    assert "collections." not in str(signature(fp.batch))


@pytest.mark.parametrize("call", [lambda rows: fp.batch(rows, 4), lambda rows: fp.shuffle(rows, seed=0), lambda rows: fp.split(rows, 0.2)])
def test_data_given_to_a_stage_are_answered_with_pipe(call):
    with pytest.raises(ArgumentTypeError, match=r"with settings only, .*fp\.pipe\(dataset, fp\.\w+\(\.\.\.\)\)\. Call it as"):
        call(fp.from_examples([{"x": 1}]))


def test_what_takes_datasets_says_how_it_takes_them():
    rows = fp.from_examples([{"x": 1}])
    with pytest.raises(ArgumentTypeError, match=r"were given\. Call it as concat\(datasets\), where datasets is a list"):
        fp.concat(rows, rows)  # type: ignore[call-arg]  # the mistake


@pytest.mark.parametrize("family", [losses, metrics])
def test_losses_and_metrics_answer_the_arguments_of_other_libraries(family):
    functions = [getattr(family, name) for name in family.__all__ if name not in ("Explained", "Measured", "Ranking", "compute", "merge")]
    for function in functions:
        with pytest.raises(ArgumentTypeError, match=r"'reduction'\. Instead of reduction: a loss returns a sum and a weight"):
            function(1, 2, reduction="mean")
