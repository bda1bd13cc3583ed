"""Models for a recipe: a known architecture or a pretrained backbone, with a head for the target."""

from typing import Any

from mlx import nn

from mlxfp.app.tasks.recipes import Recipe
from mlxfp.models import Classifier, Dropout, Regressor, WithNumbers, create, load_body, with_dropout
from mlxfp.support.errors import ArgumentError


def make_model(recipe: Recipe, name: str, *, size: str, dropout: float | None = None, seed: int) -> nn.Module:
    """Create a model with a known architecture and weights drawn from `seed`, for the inputs and the target of `recipe`.

    If the recipe has scaled numerical columns, the model is a `models.WithNumbers`. Raises the errors of `models.create`.

    >>> import mlx.core as mx
    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["mood"], "classes": ["sad", "fine", "glad"], "metric": "accuracy"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="multiclass", columns=[fp.kaggle.ColumnSpec(name="said", type="text")], **about)
    >>> recipe = fp.kaggle.fit_recipe(spec, fp.from_examples([{"said": "oh"}, {"said": "hooray"}]))
    >>> make_model(recipe, "encoder", size="tiny", seed=0)(mx.array([[2, 5, 3]])).shape
    (1, 3)
    """
    heads = {"class": "classifier", "labels": "multi_label", "value": "regressor"}
    return create(
        name,
        size=size,
        head=heads[recipe.target.answer],
        labels=recipe.target.outputs,
        vocab_size=recipe.tokenizer.vocab_size,
        max_position_embeddings=recipe.max_length,
        dropout=dropout,
        numbers=0 if recipe.scales is None else recipe.scales.count,
        seed=seed,
    )


def make_pretrained(recipe: Recipe, path: str, *, dropout: float | None = None, seed: int) -> nn.Module:
    """Create a model from the pretrained backbone in the folder `path`. The model gets a new head with random weights, drawn from `seed`.

    The head reads the mean token vector. If the recipe scales numbers, the model is a `models.WithNumbers`. Raises `ArgumentError` if the
    weights have fewer tokens than the tokenizer or fewer positions than `max_length`. Also raises the errors of `models.load_body`.
    """
    target, body = recipe.target, _body(recipe, path, dropout)
    options: dict[str, Any] = {} if dropout is None else {"dropout": dropout}
    model: nn.Module
    if target.answer == "value":
        model = Regressor(body, outputs=target.outputs, seed=seed, **options)
    else:
        model = Classifier(body, target.outputs, multi_label=target.answer == "labels", seed=seed, **options)
    if recipe.scales is None:
        return model
    return WithNumbers(model, recipe.scales.count, outputs=target.outputs, seed=seed, **options)


def _body(recipe: Recipe, path: str, dropout: float | None) -> nn.Module:
    """Read a pretrained backbone and check the vocabulary and length. `dropout` sets the rate of all dropout layers."""
    body = load_body(path)
    tokenizer, config = recipe.tokenizer, body.config
    if tokenizer.vocab_size > config.vocab_size:  # MLX would read arbitrary memory for ids beyond the last embedding
        raise ArgumentError(
            f"The model in {path!r} has {config.vocab_size} tokens, but {tokenizer!r} has more. Use the tokenizer of the pretrained model: "
            "without the option text.tokenizer, the tokenizer is read from the folder of the model."
        )
    limit = config.max_position_embeddings
    if recipe.max_length > limit:
        raise ArgumentError(
            f"The model in {path!r} has {limit} positions, got max_length={recipe.max_length}. Reduce max_length to {limit}."
        )
    if dropout is not None:
        body.config = with_dropout(config, dropout)
        for layer in body.modules():
            if isinstance(layer, Dropout):
                layer.rate = dropout
    return body
