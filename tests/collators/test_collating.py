"""The stage that collates: it checks and evaluates what a collator returns, and says which rows went wrong."""

from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError, DataError, PipelineError, SchemaError

ROWS = fp.from_examples([{"input_ids": [place] * (place % 3 + 1)} for place in range(10)])


def test_every_group_becomes_a_batch():
    dataset = fp.pipe(ROWS, fp.batch(4), fp.collate(fp.collators.text(pad_id=0)))
    assert [each["input_ids"].shape for each in dataset] == [(4, 3), (4, 3), (2, 3)]
    assert fp.length(dataset) == 3
    assert fp.schema(dataset).names == ["input_ids"]
    assert repr(dataset).endswith("collate(collator=text(pad_id=0)))")


def test_lazy_arrays_are_evaluated_in_the_thread_that_made_them():
    lazy = fp.collate(lambda group: {"x": mx.array([len(row["input_ids"]) for row in group]).astype(mx.float32) * 2})
    assert [each["x"].tolist() for each in fp.pipe(ROWS, fp.batch(5), lazy, fp.prefetch(2))] == [[2, 4, 6, 2, 4], [6, 2, 4, 6, 2]]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([mx.array(1)], "A collator must return a dict of mx.array, got list from"),
        (
            {"x": np.zeros(2)},
            r"A collator must return mx.array values, got ndarray for 'x' from .*Convert the value with mx\.array\(\.\.\.\)\. .*foreign",
        ),
        (None, "got NoneType"),
    ],
)
def test_what_is_no_batch_is_refused(made: Any, message: str):
    with pytest.raises(ArgumentTypeError, match=message):
        list(fp.pipe(ROWS, fp.batch(2), fp.collate(lambda group: made)))


def test_an_error_gains_the_source_rows():
    with pytest.raises(DataError) as error:
        list(fp.pipe(ROWS, fp.skip(1), fp.batch(3), fp.collate(fp.collators.text(pad_id=0, vocab_size=5))))
    assert "collating source rows 4, 5, 6" in error.value.__notes__
    with pytest.raises(ZeroDivisionError) as broken:
        list(fp.pipe(ROWS, fp.batch(10), fp.collate(lambda group: 1 / 0)))
    assert "collating source rows 0, 1, 2, 3, 4, 5, 6, 7, ..." in broken.value.__notes__


def test_collate_takes_groups_and_a_function():
    with pytest.raises(PipelineError, match=r"takes groups, got examples.*Put batch\(size\) before it"):
        fp.pipe(ROWS, fp.collate(fp.collators.text(pad_id=0)))
    with pytest.raises(ArgumentTypeError, match="collator must be a function"):
        fp.collate("text")


def test_the_error_of_a_collator_that_forgets_padding_names_the_columns_and_their_lengths():
    """The note names each column whose lists differ in length, for arrays of MLX and of NumPy. Other errors get no such note."""
    rows = fp.from_examples([{"ids": [5, 6, 7], "pair": [1, 2], "x": 1}, {"ids": [8], "pair": [3, 4], "x": 2}])
    for stack in (
        lambda group: {"ids": mx.array([row["ids"] for row in group])},
        lambda group: {"ids": mx.array(np.array([row["ids"] for row in group]))},
        lambda group: {"ids": mx.stack([mx.array(row["ids"]) for row in group])},
    ):
        with pytest.raises(ValueError, match=r"non-uniform|inhomogeneous|same shape") as error:
            list(fp.pipe(rows, fp.batch(2), fp.collate(stack)))
        notes = [note for note in error.value.__notes__ if "different lengths" in note]
        assert len(notes) == 1
        assert notes[0].startswith("Lists have different lengths: 1 to 3 items in the column 'ids'. Pad the lists.")
    with pytest.raises(ZeroDivisionError) as other:
        list(fp.pipe(rows, fp.batch(2), fp.collate(lambda group: {"x": mx.array(1 / 0)})))
    assert not any("different lengths" in note for note in other.value.__notes__)
    with pytest.raises(SchemaError, match=r"the column 'label', .*For rows without labels, leave out label=\.$"):
        fp.collators.text(pad_id=0, column="ids", label="label")(list(rows))


def test_a_column_that_a_collator_needs_is_missed_before_any_row_is_read():
    def rows():
        raise AssertionError("a row was read")
        yield {}

    source = fp.from_iterable(rows, schema=pa.schema({"input_ids": pa.list_(pa.int32()), "y": pa.string(), "x": pa.int64()}))
    for collator, message in (
        (
            fp.collators.text(pad_id=0, label="Y"),
            r"the column 'Y', which is missing\. Did you mean 'y'\? Columns: 'input_ids', 'y', 'x'\. For rows .*, leave out label=\.\n",
        ),
        (fp.collators.text(pad_id=0, label="y"), r"collators\.text: column 'y' must hold class numbers, got string"),
        (fp.collators.causal(pad_id=0, packed=True), r"collators\.causal needs the column 'segment_ids'"),
        (
            fp.collators.masked(pad_id=0, mask_id=1, special_ids=[], vocab_size=9, seed=0, carry=["z"]),
            r"collators\.masked needs the column 'z'",
        ),
    ):
        with pytest.raises(SchemaError, match=message):
            fp.schema(fp.pipe(source, fp.batch(2), fp.collate(collator)))
    assert fp.schema(fp.pipe(source, fp.batch(2), fp.collate(fp.collators.text(pad_id=0, label="x")))).names == ["input_ids", "y", "x"]


def test_collators_of_other_kinds_miss_their_columns_before_any_row_is_read_too():
    rows = fp.from_iterable(
        list, schema=pa.schema({"image": pa.binary(), "waveform": pa.list_(pa.float32()), "input_ids": pa.list_(pa.int32())})
    )
    for collator, message in (
        (fp.collators.vision(label="y"), r"collators\.vision needs the column 'y', .*For rows without labels, leave out label=\.\n"),
        (fp.collators.vision(image="picture"), r"collators\.vision needs the column 'picture'"),
        (fp.collators.audio(carry=["name"]), r"collators\.audio needs the column 'name'"),
        (fp.collators.seq2seq(pad_id=0, start_id=1), r"collators\.seq2seq needs the column 'labels'"),
        (fp.collators.multimodal([fp.collators.text(pad_id=0), fp.collators.vision(label="y")]), r"collators\.vision needs the column 'y'"),
        (
            fp.collators.multimodal([fp.collators.text(pad_id=0), lambda group: {}, fp.collators.audio(label="z")]),
            r"collators\.audio needs the column 'z'",
        ),
    ):
        with pytest.raises(SchemaError, match=message):
            fp.schema(fp.pipe(rows, fp.batch(2), fp.collate(collator)))
    for right in (
        fp.collators.vision(),
        fp.collators.audio(),
        fp.collators.multimodal([fp.collators.text(pad_id=0), fp.collators.vision()]),
    ):
        assert fp.schema(fp.pipe(rows, fp.batch(2), fp.collate(right))).names == ["image", "waveform", "input_ids"]


def test_a_function_that_takes_the_group_for_a_dict_is_told_of_foreign():
    with pytest.raises(AttributeError, match="keys") as caught:
        list(fp.pipe(ROWS, fp.batch(2), fp.collate(lambda group: group.keys())))
    assert any("fp.collators.foreign(function)" in note for note in caught.value.__notes__)
    with pytest.raises(AttributeError, match="absent") as caught:
        list(fp.pipe(ROWS, fp.batch(2), fp.collate(lambda group: "text".absent)))  # type: ignore[attr-defined]  # the mistake
    assert not any("foreign" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("collator", "name"),
    [
        (fp.collators.text(pad_id=0, label="y", carry=["labels"]), "labels"),
        (fp.collators.text(pad_id=0, carry=["attention_mask"]), "attention_mask"),
        (fp.collators.causal(pad_id=0, carry=["labels"]), "labels"),
        (fp.collators.masked(pad_id=0, mask_id=1, special_ids=[], vocab_size=9, seed=0, carry=["labels"]), "labels"),
        (fp.collators.tokens(pad_id=0, labels="labels", carry=["labels"]), "labels"),
        (fp.collators.seq2seq(pad_id=0, start_id=2, carry=["labels"]), "labels"),
    ],
    ids=repr,
)
def test_a_carried_column_never_replaces_an_array_of_the_collator(collator: Any, name: str):
    rows = [{"input_ids": [1, 2], "attention_mask": [1, 1], "labels": [3, 4], "y": 1}]
    with pytest.raises(SchemaError, match=rf"makes an array with the name of a column: got '{name}' in carry\. Rename the column"):
        collator(rows)
