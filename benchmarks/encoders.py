"""Models and batches for `step` and `stall`: the encoder of examples/titanic.py, and a deep narrow encoder."""

from typing import Any

import mlx.core as mx
from mlx import nn

import mlxfp as fp
from benchmarks.inputs import SENTENCE, passengers


def example_batches(count: int) -> tuple[fp.Dataset[Any], int]:
    """Return the batches of examples/titanic.py and the vocabulary size."""
    train = fp.pipe(fp.from_table(passengers(count)), fp.template(SENTENCE), fp.load())
    tokenizer = fp.train_tokenizer(train, kind="wordpiece", vocab_size=600, lowercase=True)
    collate = fp.collate(fp.collators.text(pad_id=tokenizer.pad_id, label="survived", pad_multiple=32))
    stages = (fp.tokenize(tokenizer, max_length=96), fp.shuffle(seed=0), fp.batch(32, drop_last=True), collate, fp.prefetch(2))
    return fp.pipe(train, *stages), tokenizer.vocab_size


def example_encoder(vocab_size: int) -> nn.Module:
    """Return the model of examples/titanic.py."""
    config = fp.models.EncoderConfig(vocab_size=vocab_size, hidden_size=64, num_hidden_layers=2, hidden_dropout_prob=0.1)
    return fp.models.Classifier(fp.models.Encoder(config, seed=0), outputs=2, seed=0)


def deep_encoder(vocab_size: int) -> nn.Module:
    """Return a model with more than 200 small arrays."""
    config = fp.models.EncoderConfig(vocab_size=vocab_size, hidden_size=32, num_hidden_layers=17, hidden_dropout_prob=0.0)
    return fp.models.Classifier(fp.models.Encoder(config, seed=0), outputs=2, seed=0)


def loss(model: Any, batch: dict[str, Any]) -> tuple[mx.array, mx.array]:
    """Return the sum of the cross-entropies and the number of examples."""
    return fp.losses.cross_entropy(model(batch["input_ids"], batch["attention_mask"]), batch["labels"])
