"""Downloads of model files from the Hugging Face hub into its cache."""

import re
from collections.abc import Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from mlxfp.support.checks import check_text, not_none
from mlxfp.support.errors import ArgumentError, MissingFileError

_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_FILE_NAME = re.compile(r".*\.(json|txt|safetensors|model|jinja)")


def model_folder(path: str | PathLike[str], *, revision: str | None, files: Sequence[str]) -> tuple[Path, str | None]:
    """Return the folder of a model on this machine, and `name@commit` for a model from the hub (None for a local path).

    If `path` exists on this machine, the hub is not used. Only files that match a pattern in `files` are downloaded. Raises
    `ArgumentError` for a local path with a revision, and `MissingFileError` if the hub does not have the model or does not answer.
    """
    if not isinstance(path, str) or not is_hub_name(path):
        if revision is not None:
            raise ArgumentError(
                f"A revision needs a model name on the hub, such as 'google-bert/bert-base-uncased', got the path {str(path)!r} and "
                f"revision={revision!r}. Leave out revision."
            )
        return Path(path), None
    check_text(**not_none(revision=revision))
    folder = _download(path, revision, files)
    if not folder.is_dir():
        raise MissingFileError(
            f"The model {path!r} on the hub has none of the files {', '.join(files[:4])}. mlxfp reads only the layout of transformers, "
            "with weights in safetensors format. Choose another model, or convert the model with transformers: save_pretrained(folder)."
        )
    return folder, f"{path}@{folder.name}"


def is_hub_name(path: str) -> bool:
    """Return True for the form `organization/model`, unless a file or folder with this path exists.

    >>> is_hub_name("google-bert/bert-base-uncased"), is_hub_name("weights"), is_hub_name("weights/tokenizer.json")
    (True, False, False)
    """
    return not Path(path).exists() and bool(_HUB_NAME.fullmatch(path)) and not _FILE_NAME.fullmatch(path)


def _download(name: str, revision: str | None, files: Sequence[str]) -> Path:
    hub: Any = import_module("huggingface_hub")  # installed with tokenizers
    constants: Any = import_module("huggingface_hub.constants")
    page = f"{constants.ENDPOINT}/{name}"
    try:
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except hub.utils.RevisionNotFoundError as error:
        raise MissingFileError(
            f"The model {name!r} on the hub has no revision {revision!r}. Pass a branch, a tag or a commit from {page}/commits/main."
        ) from error
    except hub.utils.GatedRepoError as error:
        raise MissingFileError(
            f"The model {name!r} on the hub needs a permission. Accept the conditions at {page}, then log in with: hf auth login"
        ) from error
    except hub.utils.RepositoryNotFoundError as error:
        raise MissingFileError(
            f"There is no folder {name!r}, and no public model of this name at {page}. Correct the path or the name. For a private model, "
            "log in with: hf auth login"
        ) from error
    except Exception as error:  # The types of network errors differ between versions of huggingface_hub.
        version = "" if revision is None else f" in revision {revision!r}"
        raise MissingFileError(
            f"There is no folder {name!r}, the model{version} is not in the cache of the hub, and the download from {page} failed "
            f"({type(error).__name__}). Correct the path, connect to the network, or copy the cache ({constants.HF_HUB_CACHE}) "
            "from another machine. With HF_HUB_OFFLINE=1, nothing is downloaded."
        ) from error
