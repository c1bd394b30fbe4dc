"""Speaks with the hub through huggingface_hub, and translates its errors.

Does not use `hf_hub_download`, which in huggingface_hub 2.4 deletes its part when it is
interrupted, and loses up to 10 MB with every cut connection.
"""

import http
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator

import httpx2
from huggingface_hub import HfApi, ModelInfo, constants, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import (
    build_hf_headers,
    get_session,
    hf_raise_for_status,
    parse_ratelimit_headers,
)

from gptoss_local.base.bounded_answers import UNCOMPRESSED, bound
from gptoss_local.base.errors import DownloadError, GptOssError, ModelNotFoundError, UsageError
from gptoss_local.base.quantities import counted
from gptoss_local.models.hub.folder import PartialFile
from gptoss_local.models.hub.listing import HubFile, Listing

RETRY_WAITS_S = (1.0, 2.0, 4.0, 8.0, 8.0)
"""Pauses between failures in a row; progress starts it over."""

_LONGEST_WAIT_S = 900.0
"""The longest wait that a hub may ask for; huggingface.co counts requests over 300 s."""

_HUB = constants.ENDPOINT or "https://huggingface.co"  # a variable of no text is unset
_SAID_S = 2.0  # a shorter wait is not worth a line
_log = logging.getLogger("gptoss")

_MAX_ANSWER_BYTES = 16 * 2**20  # a list of 10,000 files has 4 MB
_IS_FILE = "gptoss_is_file"
_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}|git-sha1:[0-9a-f]{40}")
_HOPELESS = (httpx2.DecodingError, httpx2.TooManyRedirects, httpx2.UnsupportedProtocol)
_RETRIED_STATUSES = (408, 429, 500, 502, 503, 504)
_AGAIN_HINT = "Try again: what has arrived is kept."
_STATUS_HINTS = {
    402: "Its account has to pay, or has used up its quota: look at its page.",
    403: "Check the rights of the token, or {login}.",
    451: "It may not give it to your country; another mirror in HF_ENDPOINT may.",
}

# Else huggingface_hub asks huggingface.co for a list of coding agents, even when HF_ENDPOINT names
# a mirror, and reports to the hub which one runs it.
constants.HF_HUB_DISABLE_TELEMETRY = True


class HubClient:
    """One conversation with one hub, from many threads; None is huggingface_hub's usual value."""

    def __init__(self, endpoint: str | None = None, token: str | bool | None = None) -> None:
        endpoint = endpoint or os.environ.get("HF_ENDPOINT", "").strip() or _HUB
        self.endpoint = endpoint.rstrip("/")
        if not re.match(r"https?://[^/]", self.endpoint):
            raise UsageError(
                f"{endpoint!r} is not the address of a hub.",
                hint="HF_ENDPOINT must look like https://huggingface.co.",
            )
        _check_session(token)
        self._token = token

    def list_files(self, repo: str, revision: str) -> Listing:
        what = f"the files of {repo}"
        n_failures = 0
        while True:
            try:
                return _parse_listing(self._model_info(repo, revision), repo, revision)
            except HFValidationError as error:
                raise UsageError(
                    f"{repo!r} is not the name of a repository.",
                    hint="Name it OWNER/NAME, such as openai/gpt-oss-20b.",
                ) from error
            except httpx2.ConnectError as error:  # nothing has begun: say so immediately
                raise self._explained(error, repo, revision, what) from error
            except httpx2.HTTPError as error:
                n_failures += 1
                time.sleep(self._pause_s(error, n_failures, repo, revision, what))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise DownloadError(
                    f"{self.endpoint} does not answer like a Hugging Face hub.",
                    hint="Check HF_ENDPOINT, and whether a proxy or a login page is in between.",
                ) from error

    def download(
        self,
        listing: Listing,
        file: HubFile,
        partial: PartialFile,
        add: Callable[[int], None],
        stopped: threading.Event,
    ) -> None:
        """Fetch the rest of a partial file; `add` gets the bytes gained, and `stopped` ends it."""
        n_failures = 0
        while (n_held := partial.size_bytes) < file.size_bytes:
            try:
                for n_bytes in self._append(listing, file, partial):
                    add(n_bytes)
                    if stopped.is_set():
                        break
            except httpx2.HTTPError as error:
                n_failures = 1 if partial.size_bytes > n_held else n_failures + 1
                repo, revision = listing.repo, listing.revision
                what = f"{file.name} of {repo}"
                stopped.wait(self._pause_s(error, n_failures, repo, revision, what))
            if stopped.is_set():
                raise DownloadError(f"The download of {file.name} was stopped.", hint=_AGAIN_HINT)

    def _model_info(self, repo: str, revision: str) -> ModelInfo:
        _session()  # which the library uses, too
        api = HfApi(endpoint=self.endpoint, token=self._token, headers=dict(UNCOMPRESSED))
        timeout_s = constants.HF_HUB_ETAG_TIMEOUT
        return api.model_info(repo, revision=revision, files_metadata=True, timeout=timeout_s)

    def _append(self, listing: Listing, file: HubFile, sink: PartialFile) -> Iterator[int]:
        """Read one answer into `sink`, from where it ends; yield the bytes gained.

        A mirror that ignores the range sends the first ones again, which are passed over: if it is
        a login page instead, nothing is lost.
        """
        n_held = sink.size_bytes
        url = hf_hub_url(listing.repo, file.name, revision=listing.commit, endpoint=self.endpoint)
        headers = build_hf_headers(token=self._token) | UNCOMPRESSED
        if n_held:
            headers["Range"] = f"bytes={n_held}-"
        # Redirects go to another host, where the client does not send the token.
        with _session().stream(
            *("GET", url),
            headers=headers,
            timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            extensions={_IS_FILE: True},
        ) as response:
            hf_raise_for_status(response)
            said = response.headers.get("Content-Range", "").rpartition("/")[2]
            if not said and "Content-Encoding" not in response.headers:
                said = response.headers.get("Content-Length", "")
            stated = _number(said)
            if stated is not None and stated != file.size_bytes:
                raise self._wrong_size(file, stated)
            n_read = 0 if response.status_code == http.HTTPStatus.OK else n_held
            for chunk in response.iter_bytes():
                n_read += len(chunk)
                if n_read > file.size_bytes:
                    raise self._wrong_size(file, n_read)
                if (n_new := min(len(chunk), n_read - n_held)) > 0:
                    sink.write(chunk[-n_new:])
                    yield n_new
        if n_read < file.size_bytes:
            raise httpx2.RemoteProtocolError("the answer ended early")

    def _wrong_size(self, file: HubFile, n_bytes: int) -> DownloadError:
        return DownloadError(
            f"{self.endpoint} answers with something else than {file.name}: "
            f"{n_bytes} bytes where its list says {file.size_bytes}.",
            hint="A login page or a proxy may be in between; check the mirror in HF_ENDPOINT.",
        )

    def _pause_s(
        self, error: httpx2.HTTPError, n_failures: int, repo: str, revision: str, what: str
    ) -> float:
        """Return the seconds until the next try, or raise what the user reads."""
        explained = self._explained(error, repo, revision, what)
        is_hopeless = isinstance(error, _HOPELESS)
        asked_s = 0.0
        if isinstance(error, HfHubHTTPError):
            asked_s = _asked_s(error.response)
            is_hopeless = error.response.status_code not in _RETRIED_STATUSES
        if is_hopeless or asked_s > _LONGEST_WAIT_S or n_failures > len(RETRY_WAITS_S):
            raise explained from error
        wait_s = max(RETRY_WAITS_S[n_failures - 1], asked_s)
        if wait_s >= _SAID_S:
            _log.warning("%s The next try is in %.0f s.", explained.message, wait_s)
        return wait_s

    def _explained(
        self, error: httpx2.HTTPError, repo: str, revision: str, what: str
    ) -> GptOssError:
        login = "log in with `hf auth login` or set HF_TOKEN"
        match error:
            case GatedRepoError():
                return DownloadError(
                    f"{repo} is gated: the hub gives it only to those who accepted its licence.",
                    hint=f"Accept it at {self.endpoint}/{repo}, then {login}.",
                )
            case RevisionNotFoundError():
                return ModelNotFoundError(
                    f"{repo} has no revision {revision}.",
                    hint=f"Name a branch, tag or commit of {self.endpoint}/{repo}.",
                )
            case httpx2.DecodingError():
                return DownloadError(
                    f"The answer of {self.endpoint} to a request for {what} is not read: {error}.",
                    hint="A login page or a proxy may be in between; check HF_ENDPOINT.",
                )
            case HfHubHTTPError() if "Invalid credentials" in str(error):
                return DownloadError(
                    "The hub refuses the token.", hint=f"Make a new one, then {login}."
                )
            case HfHubHTTPError() if (
                isinstance(error, RepositoryNotFoundError) or error.response.status_code == 401
            ):
                return ModelNotFoundError(
                    f"{self.endpoint} has no repository {repo}, or it is private.",
                    hint=f"Check the name; for a private one, {login}.",
                )
            case HfHubHTTPError():
                status = error.response.status_code
                hint = _STATUS_HINTS.get(status, _AGAIN_HINT).format(login=login)
                if (asked_s := _asked_s(error.response)) > _LONGEST_WAIT_S:
                    hint = f"It asks to wait {_in_words(asked_s)}. {_AGAIN_HINT}"
                return DownloadError(
                    f"{self.endpoint} answers {status} {error.response.reason_phrase} "
                    f"to a request for {what}.",
                    hint=hint,
                )
            case httpx2.UnsupportedProtocol():
                return DownloadError(
                    f"{self.endpoint} sends the request for {what} to an address that cannot be "
                    f"used: {str(error).rstrip('.')}.",
                    hint="Check the mirror in HF_ENDPOINT.",
                )
        reason = str(error).rstrip(".") or type(error).__name__
        check = "Check the network."
        if isinstance(error, httpx2.ProxyError):
            check = "Check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY."
        elif "CERTIFICATE_VERIFY_FAILED" in str(error):
            check = "If a proxy in between signs with its own CA, name its file in SSL_CERT_FILE."
        return DownloadError(
            f"{self.endpoint} cannot be reached for {what}: {reason}.",
            hint=f"{check} {_AGAIN_HINT}",
        )


def _check_session(token: str | bool | None) -> None:
    try:
        sent = build_hf_headers(token=token).get("authorization", "")
    except (OSError, ValueError) as error:
        raise UsageError(f"The token for the hub cannot be read: {error}.") from error
    if not (sent.isascii() and sent.isprintable()):
        raise UsageError(
            "The token for the hub holds characters that no token has.",
            hint="Copy it again from the hub's page into HF_TOKEN, or `hf auth login`.",
        )
    try:
        get_session()
    except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
        raise UsageError(
            f"The proxy or the certificates that the environment names cannot be used: {error}",
            hint="Check HTTPS_PROXY, HTTP_PROXY, ALL_PROXY (as http://HOST:PORT) and "
            "SSL_CERT_FILE.",
        ) from error


def _session() -> httpx2.Client:
    session = get_session()
    hooks = session.event_hooks["response"]
    if _bound not in hooks:
        hooks.append(_bound)
    return session


def _bound(response: httpx2.Response) -> None:
    """Hook: bound all but files, whose size is known."""
    is_file = response.request.extensions.get(_IS_FILE) and response.is_success
    bound(response, math.inf if is_file else _MAX_ANSWER_BYTES)


def _parse_listing(info: ModelInfo, repo: str, revision: str) -> Listing:
    if not isinstance(info.sha, str) or info.siblings is None:
        raise ValueError("neither commit nor files")
    files: dict[str, HubFile] = {}
    for sibling in info.siblings:
        lfs = sibling.lfs
        checksum = f"sha256:{lfs.sha256}" if lfs else f"git-sha1:{sibling.blob_id}"
        if not isinstance(sibling.size, int) or not _CHECKSUM.fullmatch(checksum):
            raise ValueError(f"no size or checksum of {sibling.rfilename}")
        files[sibling.rfilename] = HubFile(sibling.rfilename, sibling.size, checksum)
    architecture = (info.gguf or {}).get("architecture", "")
    return Listing(repo, revision, info.sha, files, str(architecture))


def _asked_s(response: httpx2.Response) -> float:
    asked_s: float = _number(response.headers.get("Retry-After", "")) or 0
    limit = parse_ratelimit_headers(response.headers)
    if limit is not None and limit.remaining == 0:
        asked_s = max(asked_s, limit.reset_in_seconds)
    return asked_s


def _in_words(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return counted(minutes, "minute") if minutes < 120 else counted(round(minutes / 60), "hour")


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None
