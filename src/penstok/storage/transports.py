"""Which transport a URL has, and what its server says of it.

It reads no content. `sources` looks at inputs through it; files and streams get their transport
here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from penstok.errors import InputError
from penstok.storage.base import missing_package
from penstok.storage.generic import GenericTransport
from penstok.storage.retries import Retries
from penstok.storage.s3 import S3Transport
from penstok.storage.web import WebTransport

if TYPE_CHECKING:
    from penstok.storage.base import RemoteFacts, Transport

__all__ = ["find_transport", "look_at_url"]

# A name that was mistyped should not take half a minute to be found out.
_LOOKS = Retries(num_tries=4)
_HUGGING_FACE = re.compile(
    r"hf://(?P<kind>datasets/|spaces/)?(?P<repo>[^/@]+/[^/@]+)"
    r"(?:@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/]+))?/(?P<path>.+)"
)


def find_transport(url: str) -> Transport:
    """Choose the way to an object by its URL."""
    scheme = url.partition("://")[0].lower()
    if scheme in ("http", "https"):
        return WebTransport(url)
    if scheme in ("s3", "s3a"):
        return S3Transport(url)
    if scheme == "hf":
        return _hugging_face(url)
    return GenericTransport(url)


def look_at_url(url: str, retries: Retries = _LOOKS) -> RemoteFacts:
    """Ask how large an object is, which version it has, and whether ranges of it can be read.

    Raises:
        InputError: If it is not there or cannot be read.
        UsageError: If a package is missing.
    """
    return retries.run(find_transport(url).look, url)


def _hugging_face(url: str) -> Transport:
    """Find a file's address on the web: its own library would ask the hub first, each time."""
    try:
        from huggingface_hub import constants, get_token
    except ImportError as error:
        raise missing_package(url, "huggingface_hub", "hf") from error
    match = _HUGGING_FACE.fullmatch(url)
    if match is None:
        raise InputError(
            "not the name of a file on the Hugging Face hub",
            where=f"INPUT `{url}`",
            next_step="pass `hf://datasets/OWNER/NAME/FILE`, or `.../NAME@REVISION/FILE`",
        )
    kind, revision = match["kind"] or "", quote(match["revision"] or "main", safe="")
    address = (
        f"{constants.ENDPOINT}/{kind}{match['repo']}/resolve/{revision}/{quote(match['path'])}"
    )
    return WebTransport(
        url, address, token=get_token() or "", credentials="`hf auth login`, or `HF_TOKEN`"
    )
