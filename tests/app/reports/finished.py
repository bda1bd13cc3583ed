"""Folders of finished runs whose predictions a test chooses: everything is as a run writes it, but nothing is trained."""

import json

import numpy as np

import mlxfp as fp
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import write_array, write_json, write_text
from mlxfp.app.run_folders.folders import FoldFolder
from mlxfp.app.runs.outcomes import claim_environment, finish, identities, write_folds
from mlxfp.app.runs.quickstart import prepare_fold
from tests.app.runs.competitions import SMALL, write

HOSTILE = """</td></table><script>alert("x")</script><img src=x onerror='alert(1)'>&amp;\x00\x1b[31m \u202e"""
LOG = [
    {"event": "RunStarted", "step": 0, "epoch": 0, "seconds": 0.1, "total": 3},
    *({"event": "Stepped", "step": step, "epoch": 0, "seconds": step, "metrics": {"loss": 1 / step, HOSTILE: 1.0}} for step in (1, 2, 3)),
    {"event": "Evaluated", "step": 3, "epoch": 0, "seconds": 4.0, "metrics": {"held_out/loss": None}},
]


def rows_of(count, classes):
    """Rows with a number, a category and a text that says the class, or a target that the number decides."""
    made = []
    for place in range(count):
        target = classes[place % len(classes)] if classes else f"{place * 0.5}"
        made.append({"id": f"r{place}", "size": f"{place}", "kind": "ab"[place % 2], "note": f"note {target} {HOSTILE}", "y": target})
    return made


def finished(folder, predict, *, classes=("no", "yes"), count=40, name="run", overrides=()):
    """Make a finished run of two folds whose out-of-fold predictions are `predict(targets)`; return its folder."""
    data = folder / "data"
    if not data.is_dir():
        data.mkdir()
        write(data / "train.csv", rows_of(count, classes))
        (data / "spec.yaml").write_text(spec_of(classes))
    changes = [*SMALL, f"data.spec={data}/spec.yaml", f"data.path={data}", f"output={folder}", f"name={name}", *overrides]
    made = fp.runs.plan(fp.runs.load_config(overrides=changes).config)
    folders.claim(made.folder, made.settings)
    folders.claim_data(made.folder, identities(made))
    list(claim_environment(made.folder))
    write_folds(made)
    files = [FoldFolder(made.folder, place + 1) for place in range(2)]
    whole = np.asarray(predict(made.data.targets), np.float64)
    for each, fold in zip(files, made.folds, strict=True):
        write_json(each / folders.RECIPE, fp.runs.unstructure(prepare_fold(made, fold).recipe))
        write_array(each / folders.FOLD_OOF, whole[fold.valid])
        write_text(each / folders.LOG, "".join(json.dumps(line) + "\n" for line in LOG))
        write_json(each / folders.RESULT, {"score": 0.5, "files": each.hashes(), "pipeline": fp.inspect.fingerprint(made.rows)})
    list(finish(made, files))
    return made.folder


def spec_of(classes):
    kind = "regression" if not classes else "binary" if len(classes) == 2 else "multiclass"
    listed = "" if not classes else f"classes: {list(classes)}\n"
    metric = "accuracy" if classes else "rmse"
    return (
        f"name: things\nkind: {kind}\ntrain: {{name: train.csv}}\nid: id\ntarget: [y]\n{listed}metric: {metric}\n"
        "columns:\n- {name: size, type: numerical}\n- {name: kind, type: categorical}\n- {name: note, type: text}\n"
    )
