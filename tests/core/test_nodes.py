"""Parts print as the call that makes them."""

import copy
import functools
import pickle
import sys
from typing import Any

import attrs
import pyarrow as pa
import pytest
from attrs import frozen

import mlxfp as fp
from mlxfp.core.chunks import RecordBatch
from mlxfp.core.nodes import Part, brief, children, flat_parts, label, leaves
from mlxfp.data.rows import map_filter
from mlxfp.support.errors import ArgumentTypeError, MissingExtraError
from mlxfp.testing import laws
from mlxfp.testing.probing import from_chunks

NAMES = {f.__name__: f for f in (fp.batch, fp.unbatch, fp.drop_columns, fp.skip, fp.take, fp.prefetch, fp.repeat, fp.shuffle)}
A, B = fp.from_table({"x": [1]}), fp.from_table({"x": [2]})


@pytest.mark.parametrize(
    "part",
    [
        fp.batch(2),
        fp.batch(2, drop_last=True),
        fp.unbatch(),
        fp.drop_columns(["x"]),
        fp.skip(0),
        fp.take(1),
        fp.prefetch(2),
        fp.repeat(None),
        fp.shuffle(seed=0),
        fp.shuffle(seed=0, buffer=3),
    ],
    ids=repr,
)
def test_what_a_part_prints_makes_it_again(part: Any):
    laws.assert_prints(part, NAMES)


class _PlainStage(fp.Stage):
    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Any]:
        return state, (chunk,)


class _PlainRowWise(fp.RowWise):
    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return chunk


class _PlainSource(fp.Source):
    def __init__(self, count: int) -> None:
        self.count = count

    def schema(self) -> pa.Schema:
        return pa.schema({"x": pa.int64()})

    def read(self, epoch: int, position: Any) -> Any:
        yield pa.record_batch({"x": [self.count]}), 1


@pytest.mark.parametrize(("kind", "arguments"), [(_PlainStage, ()), (_PlainRowWise, ()), (_PlainSource, (3,))])
def test_a_part_without_the_decorator_of_attrs_names_the_decorator(kind: Any, arguments: tuple[int, ...]):
    """A plain class raises an error when the class is called, before a pipeline uses the fields."""
    with pytest.raises(ArgumentTypeError, match=rf"plain class {kind.__name__} in module .*Decorate the class with attrs\.frozen"):
        kind(*arguments)


def test_a_stage_with_apply_instead_of_step_names_the_right_class():
    """`apply` belongs to `RowWise`, so the error names `RowWise`."""

    @frozen(repr=False)
    class Applying(fp.Stage):
        def apply(self, chunk: RecordBatch) -> RecordBatch:
            return chunk

    with pytest.raises(ArgumentTypeError, match=r"must define step, but Applying .* defines apply\. Derive the class from fp\.RowWise"):
        Applying()


@frozen(repr=False)
class _TwoWords(Part):
    dataset: Any
    _hidden: int = 1
    options: tuple[int, ...] = (1,)
    secret: int = attrs.field(default=2, repr=False)


def test_defaults_datasets_and_what_is_not_to_be_shown_are_left_out():
    assert repr(_TwoWords(A)) == "two_words()"
    assert repr(_TwoWords(A, 2, (1.0,), 3)) == "two_words(hidden=2)"  # type: ignore[arg-type]  # equal to the default, as Python sees it
    assert repr(_TwoWords(A, True, (2,))) == "two_words(hidden=True, options=(2,))"
    assert repr(_TwoWords(A, 1, [1])) == "two_words(options=[1])"  # type: ignore[arg-type]  # a list is no tuple


def test_names_of_classes_become_names_of_functions():
    kinds = [type(name, (), {}) for name in ("_Batch", "_BatchByTokens", "MapChunks", "_FromHF", "Top2Rows")]
    assert [label(kind) for kind in kinds] == ["batch", "batch_by_tokens", "map_chunks", "from_hf", "top2_rows"]


def test_long_values_are_cut_and_functions_named():
    assert brief(len) == "len"
    assert brief(test_long_values_are_cut_and_functions_named) == "test_long_values_are_cut_and_functions_named"
    assert brief(functools.partial(max, 1)) == "partial(max, 1)"
    assert brief("x" * 78) == repr("x" * 78)
    assert brief("x" * 200) == "'" + "x" * 59 + "..." + "x" * 15 + "'"


def test_parts_are_told_in_the_order_of_the_pipe():
    dataset = fp.pipe(A, fp.take(2), fp.batch(2), fp.repeat(2), fp.prefetch(1))
    assert list(map(repr, flat_parts(dataset))) == [
        "from_table(1 rows)",
        "take(count=2)",
        "batch(size=2)",
        "repeat(epochs=2)",
        "prefetch(depth=1)",
    ]
    assert repr(dataset) == f"pipe({', '.join(map(repr, flat_parts(dataset)))})"


def test_joined_datasets_stay_one_part_with_leaves():
    joined = fp.concat([fp.pipe(A, fp.repeat(2)), fp.concat([B, A])])
    assert len(children(joined.source)) == 2
    assert len(list(flat_parts(fp.pipe(joined, fp.take(1))))) == 2
    assert list(leaves(joined)) == [A.source, B.source, A.source]


def test_a_predicate_prints_by_its_name():
    assert repr(fp.pipe(A, fp.filter(bool))) == "pipe(from_table(1 rows), filter(predicate=bool))"
    assert repr(from_chunks([pa.record_batch({"x": [1, 2]})])) == "pipe(from_chunks([2]))"
    assert isinstance(A, fp.Dataset)


class _Padding:
    def __call__(self) -> None: ...


def test_an_object_without_a_repr_prints_without_its_address():
    assert brief(_Padding()) == "<_Padding object>"
    assert brief(functools.partial(_Padding(), 3)) == "partial(<_Padding object>, 3)"


def test_pipelines_pickle_with_functions_of_any_kind(monkeypatch):
    factor = 3
    pipeline = fp.pipe(A, map_filter.map(lambda row: {"x": row["x"] * factor}), fp.filter(lambda row: True), fp.take(2))
    copied = pickle.loads(pickle.dumps(pipeline))
    assert list(copied) == list(pipeline)
    assert copied == pipeline
    assert copy.deepcopy(pipeline).source is pipeline.source
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    assert list(pickle.loads(pickle.dumps(fp.pipe(A, map_filter.map(dict))))) == list(A)
    with pytest.raises(
        MissingExtraError, match=r"Pickling map\(function=.*<lambda>\), whose function .* needs cloudpickle. Install it with"
    ):
        pickle.dumps(pipeline)
