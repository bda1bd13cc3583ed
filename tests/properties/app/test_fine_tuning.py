"""The preset fine_tune: pretrained weights in a folder learn a task of classes better, and faster, than weights that were just drawn."""

import numpy as np
import pytest

import mlxfp as fp
from tests.app.runs.competitions import competition

QUICK = ("validation.folds=2", "observers.progress=false", "observers.plots=false", "training.compute_dtype=float32")
KINDS = {"cat": "animal", "dog": "animal", "fish": "animal", "red": "color", "green": "color", "blue": "color"}


def sentences(count, start, *, known):
    """Rows whose class is that of one of two words; `known` are the words to draw from."""
    random = np.random.default_rng(start)
    for place in range(start, start + count):
        word = random.choice(known)
        yield {"id": place, "text": f"this one is {word}", "kind": KINDS[word]}


def config_of(data, *overrides):
    changes = [f"data.path={data}", f"output={data.parent}", *QUICK, *overrides]
    return fp.runs.load_config(preset="fine_tune", overrides=changes).config


@pytest.fixture
def weights(tmp_path):
    """A folder as the hub has it: a small body that has learned which words are of one kind, from rows of another task."""
    train = list(sentences(160, 0, known=list(KINDS)))
    data = competition(tmp_path / "before", train, spec=None, test=[{"id": 900, "text": "this one is red"}])
    small = ["model.name=bert", "text.vocab_size=200", "training.epochs=12", "optimizer.learning_rate=3e-3", "name=body"]
    changes = [f"data.path={data}", f"output={tmp_path}", *QUICK, *small]
    *_, end = fp.runs.run(fp.runs.load_config(overrides=changes).config)
    assert end.score.overall > 0.95
    return fp.runs.export(tmp_path / "body", tmp_path / "hub")[0]


def test_pretrained_weights_are_fine_tuned_with_a_new_head_and_longer_texts_are_cut(weights, tmp_path):
    train = list(sentences(24, 500, known=["cat", "green", "dog", "red"]))
    test = [{"id": 900 + place, "text": f"this one is {word} " + "indeed " * 300} for place, word in enumerate(("blue", "fish"))]
    data = competition(tmp_path / "after", train, test, [{"id": row["id"], "kind": "animal"} for row in test])
    more = ["text.max_length=32", "training.size=4", "optimizer.learning_rate=1e-3"]
    events = list(fp.runs.run(config_of(data, f"model.path={weights}", *more)))
    assert events[-1].score.overall == 1.0
    notes = [event.message for event in events if isinstance(event, fp.runs.Noted)]
    assert any(note.startswith("Rows to predict: 100.0 % of 2 rows are cut off at 32 tokens") for note in notes)
    # Words that this task has never shown, of kinds that the pretrained weights know:
    rows = events[-1].submission.read_text().split()
    assert rows == ["id,kind", "900,color", "901,animal"]


def test_rates_by_layers_are_for_pretrained_weights(tmp_path):
    data = competition(tmp_path / "data", list(sentences(24, 0, known=list(KINDS))), [{"id": 900, "text": "x"}])
    with pytest.raises(fp.errors.ConfigError, match=r"optimizer\.layer_decay: layer_decay needs pretrained weights; give model\.path"):
        list(fp.runs.run(config_of(data)))
