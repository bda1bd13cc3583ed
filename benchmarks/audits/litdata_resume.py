"""litdata: a loader changes the state that it has loaded, hence a second run from the state differs. No public issue is known."""

from tempfile import TemporaryDirectory

import litdata


def rest(folder, state):
    loader = litdata.StreamingDataLoader(litdata.StreamingDataset(folder), batch_size=4)
    loader.load_state_dict(state)
    return [(batch.tolist(), loader.state_dict())[0] for batch in loader]


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        litdata.optimize(fn=int, inputs=list(range(24)), output_dir=folder, chunk_size=8, num_workers=1, mode="overwrite")
        loader = litdata.StreamingDataLoader(litdata.StreamingDataset(folder), batch_size=4)
        state = next(loader.state_dict() for _ in loader)
        print("litdata", litdata.__version__, "first run:", rest(folder, state))
        print("second run:", rest(folder, state))
