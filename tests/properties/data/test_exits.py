"""Python exits while iterators are open: nothing of ours is printed, whatever they read and wherever they are kept."""

import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

HEAD = """
import asyncio, gc, sys, time
import numpy as np, pyarrow as pa
import mlxfp as fp
fp.runtime.use_fast_blas()

folder = FOLDER
rows = fp.from_examples([{"x": i, "text": f"row {i}", "input_ids": [i] * 3} for i in range(2000)])
stream = fp.from_iterable(lambda: ({"x": i, "text": "row", "input_ids": [i, 1]} for i in range(10**9)))

def slow(row):
    time.sleep(0.001)
    return row

class Torch:
    def __len__(self): return 100
    def __getitem__(self, place): return {"x": place}

class Node:
    pass

def opened(*datasets):
    items = [fp.iterate(dataset) for dataset in datasets]
    for each in items:
        next(each)
    return items
"""

TAIL = """
kept = opened_items()  # as a global
sys.modules["kept"] = opened_items()
sys.kept = opened_items()

def function(items=opened_items()):
    return items

gc.disable()
node = Node()
node.node, node.items = node, opened_items()
del node
print("end")
"""

OPEN = {
    "sources": """
from pathlib import Path
Path(folder, "a.csv").write_text("x,y\\n" + "1,2\\n" * 90000)
Path(folder, "a.jsonl").write_text('{"x": 1}\\n' * 90000)
Path(folder, "a.txt").write_text("line\\n" * 90000)
import pyarrow.parquet, pyarrow.feather, gzip
table = pa.table({"x": range(90000)})
pyarrow.parquet.write_table(table, folder + "/a.parquet", row_group_size=1000)
with pa.OSFile(folder + "/a.arrow", "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
    writer.write_table(table, 1000)
with gzip.open(folder + "/b.csv.gz", "wt") as out:
    out.write("x,y\\n" + "1,2\\n" * 90000)
items = opened(
    rows, stream, fp.from_table(table), fp.from_torch(Torch()), fp.read_csv(folder + "/a.csv"), fp.read_csv(folder + "/b.csv.gz"),
    fp.read_jsonl(folder + "/a.jsonl"), fp.read_text(folder + "/a.txt"), fp.read_parquet(folder + "/a.parquet"),
    fp.read_arrow(folder + "/a.arrow"),
)
""",
    "stages and combinators": """
items = opened(*(
    fp.pipe(data, *stages)
    for data in (rows, stream)
    for stages in [
        (fp.map(dict),), (fp.filter(bool),), (fp.flat_map(lambda row: [row, row]),), (fp.take(30),), (fp.skip(3),), (fp.shard(0, 2),),
        (fp.shuffle(seed=0, buffer=9),), (fp.repeat(2),), (fp.repeat(None),), (fp.batch(3),), (fp.batch(3), fp.unbatch()), (fp.pack(9),),
        (fp.windows(5, separator=0), fp.batch(2)), (fp.bucket_by_length([9], size=2),), (fp.batch_by_tokens(20),),
        (fp.map(dict), fp.on_error("skip")),
    ]
))
items += opened(
    fp.pipe(rows, fp.shuffle(seed=0)), fp.pipe(rows, fp.filter(bool), fp.shuffle(seed=0)), fp.pipe(rows, fp.select([3, 1, 2])),
    fp.pipe(rows, fp.split([0.5, 0.5], seed=0))[0], fp.pipe(rows, fp.load()), fp.pipe(rows, fp.cache(folder)),
    fp.pipe(rows, fp.batch(2), fp.load()), fp.pipe(rows, fp.batch(2), fp.cache(folder)),
    fp.concat([rows, stream]), fp.interleave([rows, stream]), fp.mix([rows, stream], [1, 2]), fp.mix([rows, rows], [1, 2], stop="first"),
)
""",
    "prefetch": """
items = opened(
    fp.pipe(stream, fp.prefetch(2)), fp.pipe(stream, fp.prefetch(1), fp.batch(3), fp.prefetch(50)),
    fp.mix([fp.prefetch(2)(stream), fp.prefetch(2)(rows)], [1, 2]), fp.pipe(rows, fp.map(slow), fp.prefetch(2), fp.repeat(2)),
)
""",
    "a cache that is being written": """
import threading
items = []
for data in (fp.pipe(stream, fp.map(slow), fp.take(10**6), fp.cache(folder)), fp.pipe(stream, fp.map(slow), fp.take(10**6), fp.load())):
    each = fp.iterate(fp.pipe(data, fp.prefetch(1)))
    threading.Thread(target=lambda each=each: next(each, None), daemon=True).start()
    items.append(each)
time.sleep(0.3)
""",
    "workers": """
items = opened(
    fp.pipe(stream, fp.map(slow), fp.prefetch(1, workers=4)), fp.pipe(rows, fp.map(slow), fp.batch(3), fp.prefetch(2, workers=2)),
)
""",
    "batches": """
import mlx.core as mx
collate = fp.collate(lambda group: {"x": mx.array([row["x"] for row in group])})
items = opened(
    fp.pipe(stream, fp.batch(3), collate), fp.pipe(stream, fp.batch(3), collate, fp.prefetch(3)),
    fp.pipe(rows, fp.batch(3), collate, fp.load()),
)
""",
    "aiterate": """
loop = asyncio.new_event_loop()
items = [fp.aiterate(fp.pipe(stream, fp.batch(2))), fp.aiterate(fp.pipe(stream, fp.prefetch(2))), aiter(stream)]
for each in items:
    loop.run_until_complete(anext(each))
items.append(loop)
""",
    "aiterate in a loop that has ended": """
async def main():
    items = [fp.aiterate(fp.pipe(stream, fp.batch(2))), fp.aiterate(fp.pipe(stream, fp.prefetch(2))), aiter(stream)]
    for each in items:
        await anext(each)
    return items
items = asyncio.run(main())
""",
    "events": """
import mlx.core as mx
from mlx import nn
import io
model, optimizer = nn.Linear(1, 1), fp.optimizers.adamw(0.1)
step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["x"]), optimizer)
collate = fp.collate(lambda group: {"x": mx.array([[float(row["x"])] for row in group])})
batches = fp.pipe(rows, fp.batch(3), collate, fp.prefetch(2))
o = fp.observers
events = fp.pipe(
    fp.fit(step, fp.train_state(model, optimizer), batches, epochs=100),
    o.evaluate_every(lambda state: {"loss": 1.0}, steps=2), o.early_stopping("loss", patience=100, mode="min"),
    o.log_metrics(folder + "/log.jsonl"),
    o.checkpoint(folder + "/checkpoints", steps=1), o.on_event(fp.events.Stepped, lambda event: None), o.progress(file=io.StringIO()),
)
for _ in range(9):
    next(events)
items = [events]
""",
}


@pytest.mark.parametrize("opened", OPEN)
def test_nothing_is_printed_when_python_exits(opened: str, tmp_path: Path):
    """Iterators that are kept as a global, in a module, in `sys`, in a default argument and in a cycle are let go at different times."""
    code = HEAD.replace("FOLDER", repr(str(tmp_path))) + f"def opened_items():{indent(OPEN[opened], '    ')}\n    return items\n" + TAIL
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    assert (found.returncode, found.stdout, found.stderr) == (0, "end\n", "")
