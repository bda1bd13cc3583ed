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
from mlxfp.support.progress import Progress, shows_bars

Status = Literal["not sent", "failed", "pending", "complete", "error"]

_LARGE = 1 << 23  # bytes; smaller uploads take less than two seconds at 30 Mbit/s and need no progress bar


@frozen
class Verdict:
    """Outcome of an upload. `submit` creates instances.

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


_CURES = {
    400: "Kaggle refuses the file or the request: check the file with check_submission, and the name {name!r}, the end of {page}.",
    401: "Kaggle does not know the credentials: make a new token at https://www.kaggle.com/settings/api.",
    403: "Accept the rules first, at {page}/rules; the competition may also be over.",
    404: "No competition is called {name!r}: give the end of its address, {page}.",
    429: "The limit of submissions is reached: {page}/submissions says when there is a new one.",
}


class Client(Protocol):
    """Methods of `kaggle.api.kaggle_api_extended.KaggleApi` used by `submit`."""

    def competition_submit(self, file_name: str, message: str, competition: str, quiet: bool) -> Any:  # noqa: FBT001  # the signature is Kaggle's
        """Upload a file. Return an object with the attributes `ref` and `message`."""

    def competition_submissions(self, competition: str) -> Any:
        """Return the submissions, newest first, with the attributes `ref`, `status`, `public_score` and `error_description`."""


@explain_call
def submit(  # noqa: PLR0913  # each is a plain word of what is done
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
    no network, no credentials, unknown competition, submission limit reached, invalid file. If the connection breaks, the upload is
    repeated once, but only if the list of submissions contains no new entry. Nothing is submitted twice. Raises `MissingFileError`
    and `ArgumentError` for invalid arguments.

    Without `client`, the function uses the official client (package kaggle), with credentials as in `credentials_in`. The package
    is imported only in this case, because the import signs in.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "submission.csv")
    ...     _ = path.write_text("PassengerId,Survived")
    ...     submit(path, "titanic", message="first", yes=False)
    Verdict(status='not sent', message='submission.csv was not sent to titanic: that takes yes=True.', score=None)

    See also: `check_submission`, for checks before the upload.
    """
    check_text(competition=competition, message=message)
    check_types(bool, yes=yes)
    if not Path(path).is_file():
        raise MissingFileError(f"There is no submission at {os.fspath(path)!r}. Write one first: submission(...).write(path).")
    if not competition or wait < 0 or poll <= 0:
        raise ArgumentError(f"submit needs a competition, wait >= 0 and poll > 0, got {competition!r}, wait={wait} and poll={poll}.")
    if not yes:
        return Verdict("not sent", f"{Path(path).name} was not sent to {competition}: that takes yes=True.")
    if client is None and credentials_in(os.environ, Path.home()) is None:
        return Verdict("failed", "There are no credentials. Set KAGGLE_API_TOKEN, or see https://www.kaggle.com/settings/api.")
    try:
        if client is None:
            official: Any = optional("kaggle.api.kaggle_api_extended", extra="kaggle", needed_by="submit").KaggleApi()
            official.authenticate()
            client = official
        before = _refs(client, competition)
        reply = _upload(client, path, message, competition, before)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the client raises all errors of the network, and exits without credentials
        return Verdict("failed", f"The upload failed: {_reason(error)}. {_cure(error, competition)}")
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
    own, folder = home / ".kaggle", environ.get("KAGGLE_CONFIG_DIR")
    folders = [Path(folder)] if folder else [own, Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "kaggle"]
    named = bool(environ.get("KAGGLE_USERNAME") and environ.get("KAGGLE_KEY"))
    places = (
        *((str(path), path.is_file()) for path in (own / "access_token", own / "access_token.txt")),
        ("KAGGLE_USERNAME and KAGGLE_KEY", named),
        *((str(path), path.is_file()) for path in (*(each / "kaggle.json" for each in folders), own / "credentials.json")),
    )
    return next((place for place, there in places if there), None)


def _upload(client: Client, path: str | os.PathLike[str], message: str, competition: str, before: set[Any] | None) -> Any:
    """Upload a file. After a broken connection, repeat the upload only if the first attempt did not arrive.

    The Kaggle client shows a progress bar for large files.
    """
    quiet = Path(path).stat().st_size < _LARGE or not shows_bars()
    try:
        return client.competition_submit(os.fspath(path), message, competition, quiet=quiet)
    except OSError as error:
        after = None if before is None or _status(error) else _refs(client, competition)
        if before is None or after is None:
            raise
        if arrived := after - before:
            return _Arrived(max(arrived))
    return client.competition_submit(os.fspath(path), message, competition, quiet=quiet)


@frozen
class _Arrived:
    ref: Any


def _refs(client: Client, competition: str) -> set[Any] | None:
    """Return the references of all submissions, or None after an error."""
    try:
        return {each.ref for each in client.competition_submissions(competition) or () if each is not None}
    except (Exception, SystemExit):  # noqa: BLE001  # the upload will tell what is wrong
        return None


def _status(error: BaseException) -> int | None:
    """Return the HTTP status code of an error, or None without a response."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _cure(error: BaseException, competition: str) -> str:
    page = f"https://www.kaggle.com/competitions/{competition}"
    status = _status(error)
    if status in _CURES:
        return _CURES[status].format(page=page, name=competition)
    if isinstance(error, SystemExit):
        return _CURES[401]
    if status is None and isinstance(error, OSError):
        return f"Look at {page}/submissions whether it arrived, before you send it again."
    return f"See {page}."


def _scored(client: Client, competition: str, ref: Any, wait: float, poll: float) -> Verdict:
    end, trouble = monotonic() + wait, "It has not been scored yet."
    with Progress("wait for the score", unit="s", total=lambda: round(wait)) as progress:
        while True:
            try:
                found = next(
                    (each for each in client.competition_submissions(competition) or () if each is not None and each.ref == ref), None
                )
            except (Exception, SystemExit) as error:  # noqa: BLE001  # the file has arrived, and the network may be back at the next try
                found, trouble = None, f"Its score could not be asked for: {_reason(error)}"
            status = "PENDING" if found is None else str(getattr(found.status, "name", found.status)).upper()
            if found is not None and status == "COMPLETE":
                score = _number(found.public_score)
                return Verdict("complete", "It was accepted." if score is None else f"It scored {score:g}.", score)
            if found is not None and status == "ERROR":
                return Verdict("error", f"It could not be scored: {getattr(found, 'error_description', None) or 'no reason was given'}")
            if monotonic() + poll > end:
                return Verdict("pending", f"Submission {ref} of {competition} has arrived. {trouble}")
            sleep(poll)
            progress.update(round(poll))


def _number(score: Any) -> float | None:
    try:
        return float(score)
    except (TypeError, ValueError):  # without a public score, the value is None or an empty string
        return None


def _reason(error: BaseException) -> str:
    reason = getattr(getattr(error, "response", None), "text", "")  # explanation of the server, for example unaccepted rules
    return f"{type(error).__name__}: {error}" + (f": {reason:.300}" if reason else "")
