"""litdata: a StopIteration in a transform ends the epoch without an error. No public issue is known."""

from tempfile import TemporaryDirectory

import litdata


def same(row):
    return row


def first_word(row):
    return row if row != 7 else next(iter([]))  # an empty row


if __name__ == "__main__":
    print("litdata", litdata.__version__)
    with TemporaryDirectory() as folder:
        litdata.optimize(fn=same, inputs=list(range(12)), output_dir=f"{folder}/rows", chunk_size=4, num_workers=1)
        print("rows before the end:", list(litdata.StreamingDataset(f"{folder}/rows", transform=first_word)))
