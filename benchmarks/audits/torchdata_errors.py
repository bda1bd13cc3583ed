"""torchdata: a StopIteration in a map-style dataset ends the epoch without an error. No public issue is known."""

from importlib.metadata import version

from torchdata.stateful_dataloader import StatefulDataLoader


class Rows:
    def __len__(self):
        return 12

    def __getitem__(self, row):
        return row if row != 7 else next(iter([]))  # an empty row


print("torchdata", version("torchdata"))
print("rows before the end:", [batch.tolist() for batch in StatefulDataLoader(Rows(), batch_size=4)])
