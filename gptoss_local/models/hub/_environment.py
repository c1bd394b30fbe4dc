"""Reports mistakes in the variables of huggingface_hub before its import ends in a traceback."""

import os
from urllib.parse import urlsplit

from gptoss_local.base.errors import UsageError


def checked_endpoint(endpoint: str) -> str:
    """Return the address of a hub or mirror without a slash at its end."""
    endpoint = endpoint.rstrip("/")
    try:
        address = urlsplit(endpoint)
        is_http = address.scheme in ("http", "https") and bool(address.hostname)
        _ = address.port  # raises where it is not a number
    except ValueError:
        is_http = False
    if not is_http:
        raise UsageError(
            f"{endpoint!r} is not the address of a hub.",
            hint="HF_ENDPOINT must look like https://huggingface.co.",
        )
    return endpoint


def check_session(token: str | bool | None) -> None:
    import httpx2
    from huggingface_hub.utils import build_hf_headers, get_session

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


def _check_what_is_read_at_import() -> None:
    for name in ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"):
        text = os.environ.get(name, "0")
        if not (text.isascii() and text.strip().isdigit()):
            raise UsageError(
                f"{name} is {text!r}, and not a number of seconds.",
                hint=f"Set it as {name}=10, or unset it.",
            )
    if endpoint := os.environ.get("HF_ENDPOINT"):
        checked_endpoint(endpoint)


_check_what_is_read_at_import()
