"""Make the reference files: tiny models as transformers writes them, and what transformers computes with them.

    python -m tests.models.make_references

It needs torch and transformers (pip install "mlxfp[parity]"). The files are committed; the tests read them where these two are absent.
"""

import json
from pathlib import Path
from shutil import rmtree

from tests.models.parity import batch, probe, theirs, write_theirs

FOLDER = Path(__file__).parent / "references"
MODELS = {
    "BertForSequenceClassification": {},
    "ModernBertForMaskedLM": {},
    "LlamaForCausalLM": {"tie_word_embeddings": True},
}


def batch_of(name):
    return batch(types=name.startswith("Bert"))


def summed_up(outputs, gradients, mask):
    """Outputs at real tokens, and one number for each gradient: as many digits as float32 can be asked for."""
    kept = outputs if mask is None or outputs.ndim != 3 else outputs[mask != 0]
    numbers = {name: float((gradient * probe(gradient.shape, None)).sum()) for name, gradient in sorted(gradients.items())}
    return {"outputs": kept.tolist(), "gradients": numbers}


def rounded(value):
    if isinstance(value, float):
        return round(value, 6)
    return {name: rounded(item) for name, item in value.items()} if isinstance(value, dict) else [rounded(item) for item in value]


def main():
    for name, changes in MODELS.items():
        folder = FOLDER / name
        rmtree(folder, ignore_errors=True)
        write_theirs(folder, name, **changes)
        (folder / "generation_config.json").unlink(missing_ok=True)
        given = batch_of(name)
        expected = rounded(summed_up(*theirs(folder, name, given), given["mask"]))
        (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
