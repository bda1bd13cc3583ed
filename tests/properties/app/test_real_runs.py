"""Runs on the real files: a submission that fits Kaggle's sample, whatever the training is worth in a few seconds."""

import pytest

import mlxfp as fp

QUICK = (
    "model.name=encoder",
    "training.epochs=1",
    "validation.folds=2",
    "data.limit=200",
    "observers.progress=false",
    "observers.plots=false",
)


# House Prices in few words: 1,459 rows to predict take their time.
@pytest.mark.parametrize(
    ("name", "short"), [("titanic", ()), ("house_prices", ("text.template=A house in {Neighborhood}, {HouseStyle}.",))]
)
def test_a_preset_runs_on_the_files_of_its_competition(data_folder, tmp_path, name, short):
    folder = data_folder / name
    config = fp.runs.load_config(preset=name, overrides=[*QUICK, *short, f"data.path={folder}", f"output={tmp_path}"]).config
    events = list(fp.runs.run(config))
    end = events[-1]
    assert isinstance(end, fp.runs.Ended)
    assert end.score.metric == fp.kaggle.SPECS[name].metric
    assert fp.kaggle.check_submission(end.submission, sample=folder / fp.kaggle.SPECS[name].sample.name) == ()
    said = [event.message for event in events if isinstance(event, fp.runs.Noted)]
    known = ("Columns with a single value", "The model predicts no better than a constant")  # no pool in 200 houses, and few steps
    assert not [message for message in said if not message.startswith(known)]


@pytest.mark.parametrize("name", ["titanic", "house_prices"])
def test_no_row_of_the_real_files_is_cut_by_its_preset(data_folder, name):
    config = fp.runs.load_config(preset=name, overrides=[f"data.path={data_folder / name}"]).config
    prepared = fp.runs.prepare(config)  # refuses rows that are too long, of any part
    budgets = [prepared.recipe.budget(rows) for rows in (prepared.splits.train, prepared.splits.valid, prepared.splits.test)]
    assert max(budget.longest for budget in budgets) <= config.text.max_length
    assert {budget.over for budget in budgets} == {0.0}
