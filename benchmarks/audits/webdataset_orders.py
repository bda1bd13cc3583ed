"""webdataset: with worker processes, `detshuffle` has the same order in every epoch. https://github.com/webdataset/webdataset/issues/172"""

from importlib.metadata import version
from tempfile import TemporaryDirectory

import webdataset as wds

if __name__ == "__main__":
    print("webdataset", version("webdataset"))
    with TemporaryDirectory() as folder:
        with wds.ShardWriter(f"{folder}/%d.tar", maxcount=6, verbose=0) as writer:
            for number in range(24):
                writer.write({"__key__": str(number), "cls": number})
        for workers in (0, 2):
            rows = wds.WebDataset(f"{folder}/{{0..3}}.tar", shardshuffle=4, detshuffle=True, seed=0)
            rows = rows.compose(wds.detshuffle(10, seed=0)).decode().to_tuple("cls")
            loader = wds.WebLoader(rows, batch_size=None, num_workers=workers)
            for epoch in range(2):
                print(workers, "workers, epoch", epoch, [row for (row,) in loader])
