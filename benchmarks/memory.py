"""memory: streaming takes the same memory however long the file is."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measuring import Row

_STREAM = """
import resource, sys
import mlxfp as fp
fp.runtime.use_fast_blas()
import mlx.core, pyarrow.json, tokenizers
tokenizer = fp.load_tokenizer(sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
batches = fp.pipe(
    fp.read_jsonl(sys.argv[1]), fp.tokenize(tokenizer, max_length=128), fp.batch(32),
    fp.collate(fp.collators.text(pad_id=tokenizer.pad_id, pad_multiple=32)),
)
rows = sum(len(batch["input_ids"]) for batch in batches)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, rows)
"""


def rows() -> list[Row]:
    """Stream 200 MB and 800 MB of JSON lines through tokenize and batch, each in a process of its own; peak memory above import."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, files = Path(folder, "tokenizer"), [Path(folder, f"{size}.jsonl") for size in (200, 800)]
        for file, size in zip(files, (200, 800), strict=True):
            _write(file, size * 1_000_000)
        _train(files[0], tokenizer)
        small, large = (_peak(file, tokenizer) for file in files)
    growth = large / small
    shown = (f"{large:.0f} MB for 800 MB", f"{small:.0f} MB for 200 MB")
    return [
        Row("memory", "stream JSON lines through tokenize and batch: growth of the peak", *shown, growth, 1.10, "at most"),
        Row("memory", "the same: peak above import, MB", *shown, large, 400, "at most"),
    ]


def _peak(file: Path, tokenizer: Path) -> float:
    command = [sys.executable, "-c", _STREAM, str(file), str(tokenizer)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]) / 1000


def _write(file: Path, size: int) -> None:
    rng = np.random.default_rng(0)
    words = [f"{a}{b}" for a in ("lo", "mi", "ra", "ten", "us", "ver") for b in ("der", "fal", "gon", "ka", "lum", "pre", "sis", "tor")]
    with file.open("w") as out:
        while out.tell() < size:
            lengths = rng.integers(10, 80, 1000)
            lines = (" ".join(words[place] for place in rng.integers(0, len(words), length)) for length in lengths)
            out.writelines(json.dumps({"id": 1, "text": line}) + "\n" for line in lines)


def _train(file: Path, folder: Path) -> None:
    import mlxfp as fp

    fp.train_tokenizer(fp.pipe(fp.read_jsonl(file), fp.take(5000)), kind="wordpiece", vocab_size=2000).save(folder)
