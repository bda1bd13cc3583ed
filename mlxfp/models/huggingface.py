"""The tables of transformers: BERT, ModernBERT, Llama, Qwen2, and our own encoder, which only mlxfp reads."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from mlxfp.core.errors import DataError
from mlxfp.core.registries import Registry
from mlxfp.models.bert import BertConfig
from mlxfp.models.decoder import DecoderConfig
from mlxfp.models.encoder import EncoderConfig
from mlxfp.models.formats import Format, HeadFormat, Json, Settings, count_labels, is_regression
from mlxfp.models.modernbert import ModernBertConfig


def _rows(suffix: str, names: Mapping[str, str], read: Any, write: Any) -> dict[str, HeadFormat]:
    """Describe a sequence classifier: it is a `Classifier` or a `Regressor`, as its `problem_type` says."""
    return {
        "classifier": HeadFormat(
            suffix,
            names,
            lambda json: read(json) | {"outputs": count_labels(json), "multi_label": json.get("problem_type") == _KINDS[True]},
            lambda settings: write(settings) | _labels(settings) | {"problem_type": _KINDS[settings["multi_label"]]},
        ),
        "regressor": HeadFormat(
            suffix,
            names,
            lambda json: read(json) | {"outputs": count_labels(json)},
            lambda settings: write(settings) | _labels(settings) | {"problem_type": "regression"},
        ),
    }


_KINDS = {True: "multi_label_classification", False: "single_label_classification"}


def _labels(settings: Settings) -> dict[str, Any]:
    names = [f"LABEL_{number}" for number in range(settings["outputs"])]
    return {"id2label": {str(number): name for number, name in enumerate(names)}, "label2id": {name: i for i, name in enumerate(names)}}


def _dropout(json: Json, otherwise: str | None, default: float) -> float:
    rate = json.get("classifier_dropout")
    return float(json.get(otherwise or "", default) if rate is None else rate)


def _write_dropout(settings: Settings) -> dict[str, Any]:
    return {"classifier_dropout": settings["dropout"]}
