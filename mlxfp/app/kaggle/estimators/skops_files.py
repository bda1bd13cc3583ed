"""Files of scikit-learn's models in the format of skops: types that it does not trust are refused, and equal models are equal bytes."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

from mlxfp.support.errors import ArgumentError, DataError
from mlxfp.support.optional import optional

_SCHEMA = "schema.json"
# Types of scikit-learn that hold numbers and run no code of the file when they are built; skops leaves them to its callers.
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
    """Write a model; its parts are named by their order, where skops names them by addresses in memory and random numbers.

    Raises `ArgumentError` for a model with types that `load` would refuse.
    """
    skops = optional("skops.io", extra="kaggle", needed_by="Saving a model of scikit-learn")
    written = skops.dumps(model)
    if unknown := _untrusted(skops, data=written):
        raise ArgumentError(
            f"A {type(model).__name__} cannot be saved: files of models have types that are known to hold data only, and it has "
            f"{', '.join(unknown)}. Choose another estimator, or use this one in memory, with cross_validate."
        )
    with ZipFile(BytesIO(written)) as source:
        schema, names, ids = json.loads(source.read(_SCHEMA)), dict[str, str](), dict[int, int]()
        _rename(schema, names, ids)
        with ZipFile(path, "w", ZIP_DEFLATED) as target:
            for old, new in (*names.items(), (_SCHEMA, _SCHEMA)):
                content = json.dumps(schema, indent=1).encode() if old == _SCHEMA else _without_gaps(source.read(old), old)
                target.writestr(ZipInfo(new), content, ZIP_DEFLATED)  # an info without a date: that of every file is 1980


def load(path: Path) -> Any:
    """Read a model; raises `DataError` for a damaged file, and for one with types that are not trusted, which it does not build."""
    skops = optional("skops.io", extra="kaggle", needed_by="Reading a model of scikit-learn")
    try:
        unknown = _untrusted(skops, file=path)
        if not unknown:
            return skops.load(path, trusted=list(_TRUSTED))
    except Exception as error:
        raise DataError(f"The model in {path} cannot be read: {error}. Remove the file, and run again: it is made again.") from error
    raise DataError(
        f"The model in {path} has types that are not trusted: {', '.join(unknown)}. Nothing of it was built. Take a file that you made."
    )


def _without_gaps(content: bytes, name: str) -> bytes:
    """Write zeros where a structured array, such as the nodes of a tree, has memory that nothing was written to."""
    if not name.endswith(".npy"):
        return content
    array = np.load(BytesIO(content), allow_pickle=False)
    if array.dtype.names is None:
        return content
    clean = np.zeros(array.shape, array.dtype)
    for field in array.dtype.names:
        clean[field] = array[field]
    if {"left_child", "missing_go_to_left"} <= {*array.dtype.names}:  # scikit-learn does not set it in the leaves of its trees
        clean["missing_go_to_left"][array["left_child"] < 0] = 0
    return content[: len(content) - clean.nbytes] + clean.view(np.uint8).tobytes()  # np.save copies fields, and not what is between


def _untrusted(skops: Any, **source: Any) -> list[str]:
    return sorted({*skops.get_untrusted_types(**source)} - {*_TRUSTED})


def _rename(node: Any, names: dict[str, str], ids: dict[int, int]) -> None:
    """Give the files and ids of a schema, in place, numbers in the order in which they come."""
    if isinstance(node, list):
        for each in node:
            _rename(each, names, ids)
    elif isinstance(node, dict):
        if isinstance(node.get("__id__"), int):
            node["__id__"] = ids.setdefault(node["__id__"], len(ids))
        if isinstance(node.get("file"), str) and "__loader__" in node:
            old = node["file"]
            node["file"] = names.setdefault(old, f"{len(names)}{Path(old).suffix}")
        for each in node.values():
            _rename(each, names, ids)
