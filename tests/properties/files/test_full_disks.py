"""On a full disk, errors name the file and the remedy, and no unfinished file stays."""

import subprocess
import sys
from pathlib import Path

import pytest

_SETUP = """
import resource, sys
from pathlib import Path
import mlxfp as fp
folder = Path(sys.argv[1])
rows = fp.from_examples([{"x": f"{i:01000}"} for i in range(100)])
events = [fp.events.Evaluated(fp.TrainState({}, {}, {}, step, 0), None, 0, {"accuracy": 0.5}) for step in range(1000)]
(folder / "run.jsonl").write_text('{"event": "Stepped", "step": 1, "epoch": 0, "seconds": 0.1, "metrics": {"loss": 0.5}}\\n')
tokenizer = fp.train_tokenizer(fp.from_examples([{"text": "a hat, a cat"}]), vocab_size=300)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # writing more fails, as on a full disk
"""

CALLS = {
    "write arrow": ("fp.write(rows, folder / 'out')", "part-00000.arrow"),
    "write parquet": ("fp.write(rows, folder / 'out', format='parquet')", "part-00000.parquet"),
    "write jsonl": ("fp.write(rows, folder / 'out', format='jsonl')", "part-00000.jsonl"),
    "write on threads": ("fp.write(rows, folder / 'out', on=fp.runners.threads(2))", "part-00000.arrow"),
    "cache": ("list(fp.pipe(rows, fp.cache(folder / 'out')))", "part-00000.arrow"),
    "log_metrics": ("list(fp.pipe(events, fp.observers.log_metrics(folder / 'log.jsonl')))", "log.jsonl"),
    "tokenizer": ("tokenizer.save(folder / 'out')", "tokenizer.json"),
    "spec yaml": ("fp.kaggle.save_spec(fp.kaggle.SPECS['house_prices'], folder / 'spec.yaml')", "spec.yaml"),
    "spec json": ("fp.kaggle.save_spec(fp.kaggle.SPECS['house_prices'], folder / 'spec.json')", "spec.json"),
    "report": ("fp.runs.report(folder / 'run.jsonl', out=folder / 'report.html')", "report.html"),
}


@pytest.mark.parametrize("name", CALLS)
def test_case_e16_a_full_disk_is_named_with_the_file_and_the_remedy(tmp_path: Path, name: str):
    call, file = CALLS[name]
    run = subprocess.run([sys.executable, "-c", _SETUP + call, str(tmp_path)], capture_output=True, text=True, check=False)
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("OSError: [Errno 27] File too large. Make room for the file, then run again: "), run.stderr
    assert last.endswith(f"{file}'")
    assert not list(tmp_path.rglob("*.partial*"))
    if not name.startswith("log_metrics"):  # a log keeps the lines before the error
        assert not list(tmp_path.rglob(file))
