"""Objects under one prefix of a bucket: conditional writes, multipart uploads, deletion.

It knows nothing about tokens. Every request is retried where that may help, and every method can be
repeated, since the response to a successful attempt may be lost. `s3` makes the requests;
`output.store` and `s3_lock` write through it, from several threads.
"""

from __future__ import annotations

import hashlib
import re
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstok.errors import UsageError, WriteError
from penstok.storage.base import Operation, RetryPolicy, TransientError
from penstok.storage.s3 import call_s3, encode_md5, iter_keys, load_body, s3_error

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

__all__ = ["LostUploadError", "S3Folder", "join_etags"]

_PERMISSIONS = ", which must allow reading, writing, listing and deleting"
_THEN = "; then run the same command again: it continues"
_WRITE = Operation(WriteError, "written", "--output", _PERMISSIONS, _THEN)
_READ = Operation(WriteError, "read", "--output", _PERMISSIONS, _THEN)
_DELETE = Operation(WriteError, "deleted", "--output", _PERMISSIONS, _THEN)
# In a response without a body the status is the code.
_NO_OBJECT = ("NoSuchKey", "404")
_NO_UPLOAD = ("NoSuchUpload", "404")
_CONDITION_FAILED = ("PreconditionFailed", "412")
_PAGE_SIZE = 1000
_INVALID_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class LostUploadError(WriteError):
    """The upload no longer exists and did not create its object; it must be started again."""


class S3Folder:
    """A bucket and a prefix; names are relative to it, and all errors are `WriteError`."""

    def __init__(self, url: str, retries: RetryPolicy | None = None) -> None:
        """Take `s3://bucket/run`; no request is made yet.

        Raises:
            UsageError: If there is no bucket in the URL.
        """
        scheme, _, path = url.partition("://")
        bucket, _, key = path.rstrip("/").partition("/")
        if scheme.lower() not in ("s3", "s3a") or not bucket:
            raise UsageError(
                f"`{url}` is not the name of a folder in a bucket",
                where="--output",
                next_step="pass `s3://BUCKET/FOLDER`",
            )
        self.url: str = url.rstrip("/")
        self._bucket = bucket
        self._prefix = f"{key}/" if key else ""
        self._retries = retries or RetryPolicy()

    def get(self, name: str) -> bytes | None:
        """Read a small object; None if it does not exist."""
        found = self.find(name)
        return found[0] if found else None

    def find(self, name: str) -> tuple[bytes, str] | None:
        """Read a small object and its ETag; None if it does not exist."""
        return self._retries.run(lambda: self._find(name), self._url(name), _READ)

    def find_info(self, name: str) -> tuple[int, str] | None:
        """Return an object's size and ETag; None if it does not exist.

        A missing bucket cannot be told from a missing object: the response has no body.
        """
        answer = self._request("head_object", name, operation=_READ, expected=_NO_OBJECT)
        return (answer["ContentLength"], answer["ETag"]) if answer else None

    def put(self, name: str, data: bytes) -> str:
        """Write or replace an object; return its ETag."""
        etag: str = self._request("put_object", name, **_content(data))["ETag"]
        return etag

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write an object unless it exists; return whether it was written.

        After an attempt without a response, an object with the same content counts as written by
        it: if it matters who wrote it, no two writers may write the same.
        """
        return self._put_if(name, data, IfNoneMatch="*") is not None

    def put_if_match(self, name: str, data: bytes, etag: str) -> str | None:
        """Replace the object with this ETag; return the new one, None if it changed or is gone.

        After an attempt without a response, an object with the same content counts as written by
        it.
        """
        return self._put_if(name, data, IfMatch=etag)

    def iter_names(self, prefix: str = "", *, recursive: bool = True) -> Iterator[tuple[str, int]]:
        """Yield name and size of the objects that start with `prefix`, in the service's order."""
        url = f"s3://{self._bucket}/{self._prefix}{prefix}"
        for key, size in iter_keys(
            url, recursive=recursive, retries=self._retries, operation=_READ
        ):
            # Some tools mark a folder by an object with its name.
            if name := key.removeprefix(self._prefix):
                yield name, size

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, a thousand per request; missing ones are ignored."""
        names = iter(names)
        while batch := list(islice(names, _PAGE_SIZE)):
            invalid = [name for name in batch if _INVALID_IN_XML.search(self._prefix + name)]
            self._delete_listed([name for name in batch if name not in invalid])
            for name in invalid:
                self._request("delete_object", name, operation=_DELETE, expected=_NO_OBJECT)

    def begin_upload(self, name: str) -> str:
        """Start a multipart upload; return its id.

        An attempt whose response is lost leaves an upload that only `iter_uploads` finds.
        """
        upload_id: str = self._request("create_multipart_upload", name)["UploadId"]
        return upload_id

    def upload_part(self, name: str, upload_id: str, number: int, data: bytes | memoryview) -> str:
        """Send one part, which the service checks; return its ETag.

        Args:
            name: The object's name.
            upload_id: Its upload.
            number: Counted from 1; a part sent again replaces the earlier one.
            data: At least 5 MiB, except for the last part.
        """
        # Content-MD5 is the one check that every service makes.
        arguments = {
            "UploadId": upload_id,
            "PartNumber": number,
            "ContentMD5": encode_md5(data),
        }

        def attempt() -> str:
            # botocore copies plain bytes, but sends a file in pieces. BytesIO shares them.
            body = BytesIO(data)
            answer = self._call("upload_part", name, _WRITE, _NO_UPLOAD, Body=body, **arguments)
            if answer is None:
                raise self._lost(name)
            etag: str = answer["ETag"]
            return etag

        return self._retries.run(attempt, f"{self._url(name)}, part {number}", _WRITE)

    def complete_upload(self, name: str, upload_id: str, etags: Sequence[str]) -> None:
        """Create the object from its parts; if that was done before, check the object instead.

        Args:
            name: The object's name.
            upload_id: Its upload.
            etags: Those of all parts, in order.

        Raises:
            LostUploadError: If the upload is gone and the object was not made of these parts, or
                if that cannot be determined because ETags are not checksums (objects encrypted
                with the user's key).
        """
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        answer = self._request(
            "complete_multipart_upload",
            name,
            expected=_NO_UPLOAD,
            UploadId=upload_id,
            MultipartUpload={"Parts": parts},
        )
        if answer is not None:
            return
        found = self.find_info(name)
        if found is None or found[1].strip('"') != join_etags(etags):
            raise self._lost(name)

    def abort_upload(self, name: str, upload_id: str) -> None:
        """Delete an upload and its parts; a missing one is ignored."""
        self._request(
            "abort_multipart_upload",
            name,
            operation=_DELETE,
            expected=_NO_UPLOAD,
            UploadId=upload_id,
        )

    def iter_uploads(self) -> Iterator[tuple[str, str]]:
        """Yield name and id of every unfinished upload in the folder.

        Names with control characters may be wrong: SeaweedFS claims to encode them but does not.
        """
        arguments: dict[str, Any] = {"Prefix": self._prefix, "MaxUploads": _PAGE_SIZE}
        while True:
            page = self._request("list_multipart_uploads", operation=_READ, **arguments)
            for entry in page.get("Uploads", ()):
                yield entry["Key"].removeprefix(self._prefix), entry["UploadId"]
            if not page["IsTruncated"]:
                return
            # Exactly the markers of the response: SeaweedFS sorts by the id alone.
            for marker in ("KeyMarker", "UploadIdMarker"):
                arguments[marker] = page.get(f"Next{marker}", "")

    def _put_if(self, name: str, data: bytes, **condition: str) -> str | None:
        num_tries = 0

        def attempt() -> str | None:
            nonlocal num_tries
            num_tries += 1
            expected = (*_CONDITION_FAILED, *_NO_OBJECT)
            answer = self._call("put_object", name, _WRITE, expected, **_content(data), **condition)
            if answer is not None:
                return str(answer["ETag"])
            # An earlier attempt may have succeeded although its response was lost.
            found = self._find(name) if num_tries > 1 else None
            return found[1] if found and found[0] == data else None

        return self._retries.run(attempt, self._url(name), _WRITE)

    def _find(self, name: str) -> tuple[bytes, str] | None:
        answer = self._call("get_object", name, _READ, _NO_OBJECT)
        return (load_body(answer["Body"]), answer["ETag"]) if answer else None

    def _delete_listed(self, names: list[str]) -> None:
        objects = [{"Key": self._prefix + name} for name in names]

        def attempt() -> None:
            answer = self._call("delete_objects", None, _DELETE, Delete={"Objects": objects})
            if "Deleted" not in answer and "Errors" not in answer:
                raise TransientError("the server's response is truncated")
            for error in answer.get("Errors", ()):
                if error.get("Code") not in _NO_OBJECT:
                    url = self._url(error.get("Key", "").removeprefix(self._prefix))
                    raise s3_error(url, error, operation=_DELETE)

        if objects:
            self._retries.run(attempt, self.url, _DELETE)

    def _request(
        self,
        method: str,
        name: str | None = None,
        *,
        operation: Operation = _WRITE,
        expected: Collection[str] = (),
        **arguments: Any,
    ) -> Any:
        """Make a request, with retries."""
        return self._retries.run(
            lambda: self._call(method, name, operation, expected, **arguments),
            self._url(name),
            operation,
        )

    def _call(
        self,
        method: str,
        name: str | None,
        operation: Operation,
        expected: Collection[str] = (),
        **arguments: Any,
    ) -> Any:
        """Make a request once, about an object or about the folder."""
        arguments["Bucket"] = self._bucket
        if name is not None:
            arguments["Key"] = self._prefix + name
        return call_s3(self._url(name), method, arguments, operation=operation, expected=expected)

    def _url(self, name: str | None) -> str:
        return self.url if name is None else f"{self.url}/{name}"

    def _lost(self, name: str) -> LostUploadError:
        return LostUploadError(
            "the upload is gone, and its object was not created",
            where=self._url(name),
            next_step=f"check that nothing else writes here or aborts uploads{_THEN}",
        )


def join_etags(etags: Sequence[str]) -> str:
    """Compute an object's ETag from those of its parts, as S3 does; "" if they are not MD5."""
    try:
        digests = b"".join(bytes.fromhex(etag.strip('"')) for etag in etags)
    except ValueError:
        return ""
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"


def _content(data: bytes) -> dict[str, Any]:
    return {"Body": data, "ContentMD5": encode_md5(data)}
