"""E12: columns of `pack` and `chat` that a collator would drop are an error with the call to write."""

import mlx.core as mx
import pytest

import mlxfp as fp

ROWS = fp.from_examples([{"input_ids": [1, 2, 3], "prompt": [True, False, False]}, {"input_ids": [4, 5], "prompt": [True, False]}])
WHOLE = fp.from_examples([{"input_ids": [1, 2, 3], "prompt": [False, False, False]}])
OTHER = fp.from_examples([{"input_ids": [1, 2, 3], "prompt": "a text", "positions": [0, 1, 2]}])


def _batches(rows, *stages, **options):
    return list(fp.pipe(rows, *stages, fp.batch(2), fp.collate(fp.collators.causal(pad_id=0, **options))))


def test_e12_packed_rows_without_packed_are_an_error():
    with pytest.raises(fp.errors.SchemaError, match=r"causal\(\.\.\., packed=True\)"):
        _batches(ROWS, fp.pack(8, aligned=["prompt"]), prompt_mask="prompt")


def test_e12_a_mask_forgotten_in_pack_and_in_the_collator_is_an_error():
    with pytest.raises(fp.errors.SchemaError, match=r"aligned=\['prompt'\]"):
        _batches(ROWS, fp.pack(8))
    with pytest.raises(fp.errors.DataError, match=r"prompt_mask='prompt'"):
        _batches(ROWS, fp.pack(8, aligned=["prompt"]), packed=True)
    with pytest.raises(fp.errors.DataError, match=r"prompt_mask='prompt'"):
        _batches(ROWS)


@pytest.mark.parametrize("in_memory", [False, True])
def test_e12_correct_pipelines_raise_nothing(in_memory):
    stages = [fp.load()] if in_memory else []
    assert _batches(WHOLE, *stages)[0]["labels"].tolist() == [[2, 3]]
    assert _batches(OTHER, *stages)[0]["labels"].tolist() == [[2, 3]]
    assert _batches(ROWS, *stages, prompt_mask="prompt")[0]["labels"].tolist() == [[2, 3], [5, -100]]
    assert _batches(ROWS, fp.drop_columns(["prompt"]), *stages)[0]["labels"].tolist() == [[2, 3], [5, -100]]
    dropped = _batches(ROWS, fp.pack(8, aligned=["prompt"]), fp.drop_columns(["segment_ids", "positions", "prompt"]), *stages)
    assert dropped[0]["input_ids"].shape == (1, 4)
    packed = _batches(ROWS, fp.pack(8, aligned=["prompt"]), *stages, packed=True, prompt_mask="prompt")
    assert isinstance(packed[0]["segment_ids"], mx.array)


@pytest.mark.parametrize(
    ("collator", "remedy"),
    [
        (fp.collators.causal(pad_id=0), "Write causal(..., packed=True)"),
        (fp.collators.masked(pad_id=0, mask_id=1, special_ids=[0, 1], vocab_size=9, seed=0), "Write masked(..., packed=True)"),
        (fp.collators.tokens(pad_id=0, labels="q"), "Write tokens(..., packed=True)"),
        (fp.collators.text(pad_id=0), "Use causal, masked or tokens with packed=True"),
        (fp.collators.text(pad_id=0, column="q"), "Use causal, masked or tokens with packed=True"),
        (fp.collators.seq2seq(pad_id=0, start_id=1, target="q"), "Remove pack"),
    ],
)
def test_packed_rows_outside_a_pipeline_are_an_error_as_in_a_pipeline(collator, remedy):
    """Tokens would attend to other documents, and labels would cross documents."""
    rows = fp.from_examples([{"input_ids": [1, 2, 3], "q": [1, 2, 3]}, {"input_ids": [4, 5], "q": [4, 5]}])
    packed = fp.pipe(rows, fp.pack(8, aligned=["q"]))
    message = (
        f"{collator.name} would lose the columns 'segment_ids' and 'positions' of pack, so tokens would attend to other documents. "
        f"{remedy}, or remove the columns with drop_columns(['segment_ids', 'positions']) before batch."
    )
    groups = fp.pipe(packed, fp.batch(2))
    for call in (
        lambda: collator(list(packed)),
        lambda: collator([dict(row) for row in packed]),
        lambda: collator(next(iter(groups))),
        lambda: next(iter(fp.pipe(groups, fp.collate(collator)))),
    ):
        with pytest.raises(fp.errors.SchemaError) as error:
            call()
        assert str(error.value) == message
