"""Presets: named settings that differ from the defaults."""

from collections.abc import Mapping
from typing import Any

from mlxfp.support.registries import Registry

_QUICK = {"data": {"limit": 200}, "training": {"epochs": 2}, "validation": {"folds": 2}}
_CAREFUL = {"observers": {"patience": 4, "keep": 2}, "training": {"ema": 0.99}}

PRESETS: Registry[Mapping[str, Any]] = Registry(
    "preset",
    {
        "auto": {"name": "auto", "model": {"name": "auto"}, "observers": {"minutes": 5.0}},
        "quick_test": _QUICK | {"model": {"size": "tiny"}, "observers": {"plots": False}},
        # The preset `development` has no prefetch threads, so that tracebacks are short. Large batches make an epoch quick.
        "development": {"data": {"prefetch": 0}, "training": {"epochs": 5, "size": 64}, "validation": {"folds": 3}},
        "training": _CAREFUL | {"data": {"prefetch": 4, "workers": 2}, "validation": {"folds": 5}},
        "production": _CAREFUL | {"validation": {"folds": 5}, "observers": {"patience": 4, "keep": 3, "mlflow": "sqlite:///mlflow.db"}},
        "competition": {
            # `text.permute` creates new texts in each epoch. Four workers tokenize these texts during training.
            "data": {"prefetch": 8, "workers": 4},
            "text": {"permute": True},
            "training": {"epochs": 12, "size": 16, "ema": 0.99},
            "validation": {"folds": 5, "repeats": 2},
            "competition": {"views": 4},
            "observers": {"mlflow": "sqlite:///mlflow.db"},
        },
        # Source of the learning rates per layer: Howard and Ruder, 2018.
        # Source of the warmup and the number of epochs: Mosbach et al., "On the Stability of Fine-tuning BERT", 2021.
        "fine_tune": {
            "name": "fine_tune",
            "text": {"form": "key_value", "max_length": 256, "overflow": "cut"},
            "optimizer": {"learning_rate": 5e-5, "layer_decay": 0.9},
            "training": {"epochs": 5, "size": 16, "compute_dtype": "bfloat16"},
        },
        "images": {"name": "images", "task": "images", "model": {"size": "mini"}, "training": {"epochs": 20}},
        "audio": {"name": "audio", "task": "audio", "model": {"size": "mini"}, "training": {"epochs": 20}},
        "language_model": {
            "name": "language_model",
            "task": "language_model",
            "text": {"tokenizer": "bpe", "vocab_size": 8000, "max_length": 256},
            "training": {"epochs": 3, "size": 16},
        },
        "titanic": {
            "name": "titanic",
            "data": {"spec": "titanic"},
            "text": {"form": "sentence", "max_length": 128},
            "training": {"epochs": 2, "ema": 0.98},  # 12 epochs overfit the 700 training rows: accuracy is four points lower
        },
        "house_prices": {
            "name": "house_prices",
            "data": {"spec": "house_prices"},
            "text": {"form": "key_value", "numbers": "none", "vocab_size": 2000, "max_length": 256},
            "model": {"numeric": True},
            "training": {"epochs": 8, "ema": 0.98},
        },
        "disaster_tweets": {
            "name": "disaster_tweets",
            "data": {"spec": "disaster_tweets"},
            "text": {"form": "key_value", "vocab_size": 8000, "max_length": 96},
            "training": {"epochs": 4},
        },
        "spaceship_titanic": {
            "name": "spaceship_titanic",
            "data": {"spec": "spaceship_titanic"},
            "text": {"form": "sentence", "max_length": 128},
        },
    },
)
