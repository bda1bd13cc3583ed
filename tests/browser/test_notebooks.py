"""What a notebook shows of values, in a real browser: on a phone and a screen, light and dark."""

import mlx.core as mx
import numpy as np
import pytest

import mlxfp as fp
from mlxfp.app.reports.writing import page
from mlxfp.support.html import element
from tests.app.reports.finished import HOSTILE
from tests.browser.conftest import Seen

# The name of a column that any notebook can be given, and one that is long.
ROWS = [{f"{HOSTILE}{'x' * 300}{place}": "y" * 1000 for place in range(8)}]
PLAIN = [{"text": f"passenger {place}", "ids": list(range(place)), "fare": 7.25 * place} for place in range(9)]


@pytest.mark.parametrize("rows", [ROWS, PLAIN], ids=["hostile", "plain"])
def test_values_are_readable(rows, look, tmp_path):
    dataset = fp.pipe(fp.from_examples(rows), fp.shuffle(seed=0), fp.batch(3))
    group, cursor = next(fp.iterate(dataset))
    plain = fp.from_examples(rows)
    joined = fp.pipe(fp.concat([plain, fp.concat([plain, plain])]), fp.prefetch(2, workers=2), fp.batch(1))
    name = next(iter(rows[0]))
    ids = {f"{name}input_ids": np.zeros((2, 300), np.int32), f"{name}attention_mask": np.ones((2, 300), np.int32)}
    score = fp.kaggle.Score(name, (0.5, 1.0), 0.75)
    state = fp.TrainState({name: mx.zeros((2, 3))}, {}, {}, step=1234, seed=0)
    written = fp.write(plain, tmp_path / "written", format="parquet")
    values = (plain, dataset, group, cursor, joined, fp.inspect.show_batch(ids), score, state, written, fp.inspect.profile(dataset))
    ends = fp.runs.FoldEnded(tmp_path, 1, metric=name, score=0.5), fp.runs.Ended(tmp_path, score, submission=tmp_path / "submission.csv")
    shown = [*(value._repr_html_() for value in (*values, *ends)), fp.explain(dataset, format="html")]
    path = tmp_path / "page.html"
    path.write_text(page("values", *(element("section", each) for each in shown)), "utf-8")
    assert look(path.as_uri()) == Seen()
