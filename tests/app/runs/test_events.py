"""How the events of a run look in a notebook."""

import re
from pathlib import Path

import mlxfp as fp

HOSTILE = "<script>alert('x')</script>\x00\u202e</table>"


def html(value):
    return value._repr_html_()


def test_scores_of_a_run_and_of_a_fold():
    score = fp.kaggle.Score(HOSTILE, (0.5, float("nan"), 1.0), 0.8)
    shown = html(fp.runs.Ended(Path(HOSTILE), score, submission=None))
    assert html(score) in shown
    assert "<script" not in shown
    assert "\u202e" not in shown  # it would turn the score around that comes after the name
    assert [float(width) for width in re.findall(r'style="width:([\d.]+)%', shown)] == [50, 100]
    assert "undefined" in shown
    assert "undefined" in html(fp.runs.FoldEnded(Path(), 1, metric=HOSTILE, score=None))
    assert "0.8000" in html(fp.runs.FoldEnded(Path(), 1, metric="accuracy", score=0.8))
    assert "The score is undefined." in html(fp.runs.Ended(Path("runs/x"), None, submission=Path("submission.csv")))
    assert len(html(fp.kaggle.Score("rmse" * 1000, (0.0,) * 1000, 0.0))) < 20_000
