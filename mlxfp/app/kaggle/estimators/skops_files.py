"""scikit-learn models in skops files. Only trusted types are loaded, and equal models produce equal bytes."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

from mlxfp.support.errors import ArgumentError, DataError
from mlxfp.support.optional import optional

_SCHEMA = "schema.json"
# Types allowed in a model file. The types hold plain data, so loading runs no code from the file.
# By default, the library skops does not trust the types in `_TRUSTED`.
_TRUSTED = (
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
)


def dump(model: Any, path: Path) -> None:
    """Write a model to a skops file.

    File names and ids become consecutive numbers, because skops uses memory addresses and random numbers. Raises `ArgumentError`
    for a model with types that `load` would reject.
    """
    skops = optional("skops.io", extra="kaggle", needed_by="Saving a model of scikit-learn")
    written = skops.dumps(model)
    if unknown := _untrusted(skops, data=written):
        raise ArgumentError(
            f"A {type(model).__name__} cannot be saved, because model files may contain only types known to be plain data, not "
            f"{', '.join(unknown)}. Choose another estimator, or use this estimator in memory, with cross_validate."
        )
    with ZipFile(BytesIO(written)) as source:
        schema, names, ids = json.loads(source.read(_SCHEMA)), dict[str, str](), dict[int, int]()
        _rename(schema, names, ids)
        with ZipFile(path, "w", ZIP_DEFLATED) as target:
            for old, new in (*names.items(), (_SCHEMA, _SCHEMA)):
                content = json.dumps(schema, indent=1).encode() if old == _SCHEMA else _with_zero_padding(source.read(old), old)
                target.writestr(ZipInfo(new), content, ZIP_DEFLATED)  # the default date of ZipInfo is constant (1980)


def load(path: Path) -> Any:
    """Read a model. Raise `DataError` for damaged files, and for files with untrusted types, before anything is built."""
    skops = optional("skops.io", extra="kaggle", needed_by="Reading a model of scikit-learn")
    try:
        try:
            return skops.load(path, trusted=list(_TRUSTED))
        except optional("skops.io.exceptions", extra="kaggle", needed_by="Reading a model of scikit-learn").UntrustedTypesFoundException:
            unknown = _untrusted(skops, file=path)
    except Exception as error:
        raise DataError(f"The model in {path} cannot be read: {error}. Remove the file and run again to recreate the model.") from error
    raise DataError(
        f"The model in {path} has untrusted types: {', '.join(unknown)}. Nothing was loaded. Use a file written by save_estimator."
    )


def _with_zero_padding(content: bytes, name: str) -> bytes:
    """Zero the padding bytes between the fields of a structured array, such as tree nodes. These bytes are uninitialised memory."""
    if not name.endswith(".npy"):
        return content
    array = np.load(BytesIO(content), allow_pickle=False)
    if array.dtype.names is None:
        return content
    clean = np.zeros(array.shape, array.dtype)
    for field in array.dtype.names:
        clean[field] = array[field]
    if {"left_child", "missing_go_to_left"} <= {*array.dtype.names}:  # scikit-learn does not initialise `missing_go_to_left` of leaf nodes
        clean["missing_go_to_left"][array["left_child"] < 0] = 0
    return content[: len(content) - clean.nbytes] + clean.view(np.uint8).tobytes()  # np.save would write uninitialised padding bytes


def _untrusted(skops: Any, **source: Any) -> list[str]:
    return sorted({*skops.get_untrusted_types(**source)} - {*_TRUSTED})


def _rename(node: Any, names: dict[str, str], ids: dict[int, int]) -> None:
    """Replace the object ids and file names in a skops schema by consecutive numbers, in place. Equal models then have equal files."""
    if isinstance(node, list):
        for child in node:
            _rename(child, names, ids)
    elif isinstance(node, dict):
        if isinstance(node.get("__id__"), int):
            node["__id__"] = ids.setdefault(node["__id__"], len(ids))
        if isinstance(node.get("file"), str) and "__loader__" in node:
            old = node["file"]
            node["file"] = names.setdefault(old, f"{len(names)}{Path(old).suffix}")
        for child in node.values():
            _rename(child, names, ids)
