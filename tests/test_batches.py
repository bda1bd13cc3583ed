"""Parts of a dataset become batches in one call, of any kind and for language models."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp

TEXTS = fp.from_examples([{"text": f"number {place} of many short texts", "y": place} for place in range(60)])
TOKENIZER = fp.train_tokenizer(TEXTS, kind="bpe", vocab_size=300)


def numbers(batches):
    return [number for batch in batches for number in batch["y"].tolist()]


@given(count=st.integers(8, 60), size=st.integers(1, 8), seed=st.integers(0, 5), prefetched=st.integers(0, 2))
def test_every_row_is_in_one_part_and_only_training_is_shuffled(count, size, seed, prefetched):
    rows = fp.pipe(fp.from_examples([{"y": place} for place in range(count)]))
    parts = fp.train_valid_test(rows, seed=seed, valid=0.25, test=0.25)
    made = fp.train_valid_batches(parts, fp.collators.default(), size=size, seed=seed, prefetched=prefetched)
    train = [row["y"] for row in parts.train]
    assert all(len(batch["y"]) == size for batch in made.train)
    assert set(numbers(made.train)) <= set(train)
    assert len(numbers(made.train)) == len(train) // size * size
    assert [numbers(made.valid), numbers(made.test)] == [[row["y"] for row in part] for part in (parts.valid, parts.test)]


def test_each_epoch_has_another_order_and_a_run_trains_on_it():
    made = fp.train_valid_batches(fp.Splits(TEXTS), fp.collators.default(), size=5, seed=0, encode=fp.select_columns(["y"]))
    first, second = (numbers(batch for batch, _ in fp.iterate(made.train, epoch=epoch)) for epoch in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second) == list(range(60))
    assert made.valid is made.test is None


@pytest.mark.parametrize("kept", [False, True])
def test_a_language_model_predicts_every_token_once(tmp_path, kept):
    parts = fp.train_valid_test(TEXTS, seed=0)
    path = tmp_path / "tokens" if kept else None
    made = fp.language_model_batches(parts, TOKENIZER, length=7, size=2, seed=0, path=path)
    stream = [token for row in parts.valid for token in (*TOKENIZER.encode(row["text"], special=False), TOKENIZER.sep_id)]
    rows = [row for batch in made.valid for row in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True)]
    assert [token for ids, _ in rows for token in ids] == stream[: 7 * len(rows)]
    assert [token for _, labels in rows for token in labels] == stream[1 : 7 * len(rows) + 1]
    assert len(stream) - 1 - 7 * len(rows) < 7
    assert {batch["input_ids"].shape for batch in made.train} == {(2, 7)}
    assert bool(list(tmp_path.rglob("*.arrow"))) == kept
    assert len(fp.inspect.batch_shapes(made.train)) == 1


def test_what_cannot_be_is_said_at_once():
    with pytest.raises(fp.errors.ArgumentTypeError, match="parts must be Splits, got"):
        fp.train_valid_batches(TEXTS, fp.collators.default(), size=2, seed=0)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(fp.errors.ArgumentError, match="length must be at least 1"):
        fp.language_model_batches(fp.Splits(TEXTS), TOKENIZER, length=0, size=2, seed=0)
