"""litdata: the order of a shuffled StreamingDataset depends on the number of workers. No public issue is known."""

from tempfile import TemporaryDirectory

import litdata


def batches(folder, workers):
    rows = litdata.StreamingDataset(folder, shuffle=True, seed=0)
    return [batch.tolist() for batch in litdata.StreamingDataLoader(rows, batch_size=4, num_workers=workers)]


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        litdata.optimize(fn=int, inputs=list(range(24)), output_dir=f"{folder}/rows", chunk_size=8, num_workers=1)
        print("litdata", litdata.__version__)
        print("no workers:", batches(f"{folder}/rows", 0))
        print("2 workers:", batches(f"{folder}/rows", 2))
