"""LanceDB: `StreamingDataset` drops the rows that do not fill all splits, as the docstring says."""

from importlib.metadata import version
from tempfile import TemporaryDirectory

import lancedb
from lancedb.streaming import StreamingDataset

print("lancedb", version("lancedb"))
with TemporaryDirectory() as folder:
    table = lancedb.connect(folder).create_table("rows", [{"x": number} for number in range(50)])
    rows = [row["x"] for row in StreamingDataset(table, num_splits=4, shuffle_seed=0, columns=["x"])]
    print(len(rows), "of 50 rows; lost:", sorted(set(range(50)) - set(rows)))
