"""mosaicml-streaming: a StopIteration in `__getitem__` ends the epoch of a worker without an error. No public issue is known."""

from importlib.metadata import version
from tempfile import TemporaryDirectory

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset


class Rows(StreamingDataset):
    def __getitem__(self, index):
        row = super().__getitem__(index)["x"]
        return row if row != 7 else next(iter([]))  # an empty row


if __name__ == "__main__":
    print("mosaicml-streaming", version("mosaicml-streaming"))
    with TemporaryDirectory() as folder:
        with MDSWriter(out=folder, columns={"x": "int"}) as writer:
            [writer.write({"x": number}) for number in range(24)]
        print([batch.tolist() for batch in StreamingDataLoader(Rows(local=folder, batch_size=4), batch_size=4, num_workers=2)])
