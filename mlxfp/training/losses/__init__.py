"""Losses. Each loss returns a sum and a weight instead of a mean, so gradient accumulation and data parallelism can average by weight."""

from mlxfp.evaluation.metrics import mae
from mlxfp.training.losses.classification import binary_cross_entropy, contrastive, cross_entropy, linear_cross_entropy
from mlxfp.training.losses.language import answer_log_probabilities, causal_lm, dpo, masked_lm
from mlxfp.training.losses.regression import huber, mse

__all__ = [
    "answer_log_probabilities",
    "binary_cross_entropy",
    "causal_lm",
    "contrastive",
    "cross_entropy",
    "dpo",
    "huber",
    "linear_cross_entropy",
    "mae",
    "masked_lm",
    "mse",
]


def __dir__() -> list[str]:
    return __all__
