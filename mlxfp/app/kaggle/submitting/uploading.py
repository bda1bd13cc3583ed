"""Upload of a submission through the official Kaggle client, only with explicit consent."""

import os
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Literal, Protocol

from attrs import frozen

from mlxfp.support.checks import check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError, MissingFileError
from mlxfp.support.optional import optional
from mlxfp.support.progress import Progress

Status = Literal["not sent", "failed", "pending", "complete", "error"]


@frozen
class Verdict:
    """Outcome of an upload. Returned by `submit`.

    Values of `status`:

    - "not sent": called with `yes=False`;
    - "failed": the upload did not arrive;
    - "pending": the upload arrived, but was not scored within `wait` seconds;
    - "complete": scored. `score` is the public score, or None if the competition hides scores;
    - "error": the competition could not score the file.

    `message` contains the reason.

    >>> Verdict("complete", "scored 0.78", score=0.78).score
    0.78
    """

    status: Status
    message: str
    score: float | None = None


_REMEDIES = {
    400: "Kaggle rejected the upload. Check the file with check_submission, and the competition name {name!r}, the last part of {page}.",
    401: "Kaggle does not accept the credentials. Create a new token at https://www.kaggle.com/settings/api.",
    403: "Accept the rules first, at {page}/rules. The competition may also have ended.",
    404: "There is no competition {name!r}. Give the last part of the competition's address, {page}.",
    429: "The submission limit is reached. {page}/submissions shows the time of the next submission.",
}


class Client(Protocol):
    """Methods of `kaggle.api.kaggle_api_extended.KaggleApi` used by `submit`."""

    def competition_submit(self, file_name: str, message: str, competition: str, quiet: bool) -> Any:  # noqa: FBT001  # signature of the Kaggle client
        """Upload a file. Return an object with the attributes `ref` and `message`."""

    def competition_submissions(self, competition: str) -> Any:
        """Return the submissions, newest first, with the attributes `ref`, `status`, `public_score` and `error_description`."""


@explain_call
def submit(  # noqa: PLR0913  # one argument per option
    path: str | os.PathLike[str],
    competition: str,
    *,
    message: str,
    yes: bool,
    client: Client | None = None,
    wait: float = 300.0,
    poll: float = 5.0,
) -> Verdict:
    """Upload a file to a competition if `yes` is True, and wait for the score.

    The function polls every `poll` seconds, for at most `wait` seconds. Upload failures are returned as a `Verdict` with a remedy:
    no network, no credentials, unknown competition, submission limit reached, invalid file. An upload is never repeated, because the
    file may have arrived before the connection broke. Raises `MissingFileError` and `ArgumentError` for invalid arguments.

    Without `client`, the function uses the official client (package kaggle), with credentials as in `credentials_in`. The package
    is imported only in this case, because the import signs in.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "submission.csv")
    ...     _ = path.write_text("PassengerId,Survived")
    ...     submit(path, "titanic", message="first", yes=False)
    Verdict(status='not sent', message='submission.csv was not sent to titanic: pass yes=True to send.', score=None)

    See also: `check_submission`, for checks before the upload.
    """
    check_text(competition=competition, message=message)
    check_types(bool, yes=yes)
    if not Path(path).is_file():
        raise MissingFileError(f"There is no submission at {os.fspath(path)!r}. Write one first: submission(...).write(path).")
    if not competition or wait < 0 or poll <= 0:
        raise ArgumentError(f"submit needs a competition, wait >= 0 and poll > 0, got {competition!r}, wait={wait} and poll={poll}.")
    if not yes:
        return Verdict("not sent", f"{Path(path).name} was not sent to {competition}: pass yes=True to send.")
    if client is None and credentials_in(os.environ, Path.home()) is None:
        return Verdict("failed", "There are no credentials. Set KAGGLE_API_TOKEN, or see https://www.kaggle.com/settings/api.")
    try:
        if client is None:
            official: Any = optional("kaggle.api.kaggle_api_extended", extra="kaggle", needed_by="submit").KaggleApi()
            official.authenticate()
            client = official
        reply = client.competition_submit(os.fspath(path), message, competition, quiet=True)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the client raises any network error, and exits without credentials
        return Verdict("failed", f"The upload failed: {_reason(error)}. {_remedy(error, competition)}")
    ref = getattr(reply, "ref", None)
    if not ref:
        return Verdict("failed", f"The upload was refused: {getattr(reply, 'message', reply)}")
    return _scored(client, competition, ref, wait, poll)


def credentials_in(environ: Mapping[str, str], home: Path) -> str | None:
    """Return the location of the credentials for the Kaggle client, without reading them. Return None without credentials.

    Locations in order of precedence:

    - the variable KAGGLE_API_TOKEN, with a token or the path of a token file;
    - `access_token` in the folder .kaggle of `home`;
    - the variables KAGGLE_USERNAME and KAGGLE_KEY;
    - `kaggle.json` in KAGGLE_CONFIG_DIR, otherwise in .kaggle or .config/kaggle;
    - `credentials.json`, written by `kaggle auth login`.

    >>> credentials_in({"KAGGLE_USERNAME": "ada", "KAGGLE_KEY": "..."}, Path("nowhere"))
    'KAGGLE_USERNAME and KAGGLE_KEY'
    """
    if environ.get("KAGGLE_API_TOKEN"):
        return "KAGGLE_API_TOKEN"
    kaggle_folder, folder = home / ".kaggle", environ.get("KAGGLE_CONFIG_DIR")
    folders = [Path(folder)] if folder else [kaggle_folder, Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "kaggle"]
    named = bool(environ.get("KAGGLE_USERNAME") and environ.get("KAGGLE_KEY"))
    locations = (
        *((str(path), path.is_file()) for path in (kaggle_folder / "access_token", kaggle_folder / "access_token.txt")),
        ("KAGGLE_USERNAME and KAGGLE_KEY", named),
        *(
            (str(path), path.is_file())
            for path in (*(directory / "kaggle.json" for directory in folders), kaggle_folder / "credentials.json")
        ),
    )
    return next((location for location, exists in locations if exists), None)


def _remedy(error: BaseException, competition: str) -> str:
    page = f"https://www.kaggle.com/competitions/{competition}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in _REMEDIES:
        return _REMEDIES[status].format(page=page, name=competition)
    if isinstance(error, SystemExit):
        return _REMEDIES[401]
    if status is None and isinstance(error, OSError):
        return f"Check {page}/submissions before sending again, because the file may have arrived."
    return f"See {page}."


def _scored(client: Client, competition: str, ref: Any, wait: float, poll: float) -> Verdict:
    end, reason = monotonic() + wait, "There is no score yet."
    with Progress("wait for the score", unit="s", total=lambda: round(wait)) as progress:
        while True:
            try:
                match = next(
                    (entry for entry in client.competition_submissions(competition) or () if entry is not None and entry.ref == ref), None
                )
            except (Exception, SystemExit) as error:  # noqa: BLE001  # the file has arrived, and the next attempt may succeed
                match, reason = None, f"The score could not be requested: {_reason(error)}"
            status = "PENDING" if match is None else str(getattr(match.status, "name", match.status)).upper()
            if match is not None and status == "COMPLETE":
                score = _number(match.public_score)
                return Verdict("complete", "The submission was accepted." if score is None else f"The score is {score:g}.", score)
            if match is not None and status == "ERROR":
                return Verdict(
                    "error", f"The submission could not be scored: {getattr(match, 'error_description', None) or 'no reason was given'}"
                )
            if monotonic() + poll > end:
                return Verdict("pending", f"Submission {ref} of {competition} has arrived. {reason}")
            sleep(poll)
            progress.update(round(poll))


def _number(score: Any) -> float | None:
    try:
        return float(score)
    except (TypeError, ValueError):  # without a public score, the value is None or an empty string
        return None


def _reason(error: BaseException) -> str:
    reason = getattr(getattr(error, "response", None), "text", "")  # reason sent by the Kaggle server
    return f"{type(error).__name__}: {error}" + (f": {reason:.300}" if reason else "")
