"""padding: the share of padding in batches of wikitext lines, and the number of batch shapes. MLX compiles once per shape."""

from collections.abc import Iterable
from typing import Any

import mlxfp as fp
from benchmarks.inputs import natural_text, tokenizers
from benchmarks.measuring import Row


def rows(*, small: bool) -> list[Row]:
    """Compare batches by length and packed rows with batches in random order, padded to multiples of 32."""
    name, tokenizer = next(iter(tokenizers().items()))
    texts = natural_text(1_000_000)[: 300 if small else None]
    lines = fp.pipe(fp.from_table({"text": texts}), fp.tokenize(tokenizer), fp.shuffle(seed=0), fp.load())
    lengths = [len(row["input_ids"]) for row in lines]
    plan = fp.shape_plan(lengths, shapes=8)
    by_length = fp.bucket_by_length(plan.lengths, tokens=8192, drop_last=True)
    padded_to = fp.collators.text(pad_id=0, lengths=plan.lengths)
    width = max(512, *lengths)
    packed = fp.collators.causal(pad_id=0, packed=True, length=width - 1)
    random = _measured(fp.pipe(lines, fp.batch(32), fp.collate(fp.collators.text(pad_id=0, pad_multiple=32))))
    ways = {
        "by length (8 planned)": _measured(fp.pipe(lines, by_length, fp.collate(padded_to))),
        f"packed to rows of {width}": _measured(fp.pipe(lines, fp.pack(width), fp.batch(16, drop_last=True), fp.collate(packed))),
    }
    work, peer = f"{len(lengths):,} lines, {name}", f"random order {random[0]:.1%}, {random[1]} shapes"
    out = []
    for way, (share, shapes) in ways.items():
        shown = (f"{share:.1%}, {shapes} shapes", peer)
        if way.startswith("packed"):  # with 8 lengths and whole lines, 16.7 % is optimal
            out.append(Row("padding", f"{work}, {way}: percent padding", *shown, share * 100, 4, "at most"))
        out.append(Row("padding", f"{work}, {way}: shapes", *shown, shapes, 8, "at most"))
    return out


def _measured(batches: Iterable[dict[str, Any]]) -> tuple[float, int]:
    """Return the share of padding and the number of batch shapes."""
    real, places, shapes = 0, 0, set[tuple[int, ...]]()
    for batch in batches:
        mask = batch["attention_mask"]
        real, places = real + int(mask.sum().item()), places + mask.size
        shapes.add(mask.shape)
    return 1 - real / places, len(shapes)
