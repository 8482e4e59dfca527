"""Objects under one prefix of a bucket: written on conditions, uploaded in parts, deleted.

It knows nothing of tokens, and plans nothing. Every request is tried again where that may help, and
every method leaves the same behind if it is called twice: the answer of a try that succeeded may
be lost. `s3` makes the requests; one folder serves several threads.
"""

from __future__ import annotations

import hashlib
import io
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstok.errors import UsageError, WriteError
from penstok.storage.base import PassingError, Purpose
from penstok.storage.retries import Retries
from penstok.storage.s3 import call_s3, encode_md5, explain_error, load_body

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

__all__ = ["LostUploadError", "S3Folder", "join_etags"]

_RIGHTS = ", which must allow reading, writing, listing and deleting"
_AFTER = "; then run the same command again: it continues"
_WRITING = Purpose(WriteError, "written", "--output", _RIGHTS, _AFTER)
_LOOKING = Purpose(WriteError, "read", "--output", _RIGHTS, _AFTER)
_DELETING = Purpose(WriteError, "deleted", "--output", _RIGHTS, _AFTER)
# Where an answer has no body, the status stands for the code.
_NOT_THERE = ("NoSuchKey", "404")
_NO_UPLOAD = ("NoSuchUpload", "404")
_NOT_MET = ("PreconditionFailed", "412")
_MAX_LISTED = 1000
# What every answer has that is whole: one that is cut before its end may look like a success.
_NEEDED = {
    "get_object": ("ContentLength", "ETag"),
    "head_object": ("ContentLength", "ETag"),
    "put_object": ("ETag",),
    "upload_part": ("ETag",),
    "create_multipart_upload": ("UploadId",),
    "complete_multipart_upload": ("ETag",),
    "list_objects_v2": ("IsTruncated",),
    "list_multipart_uploads": ("IsTruncated",),
}
_OUTSIDE_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class LostUploadError(WriteError):
    """An upload that is gone without having made its object; it must be begun again."""


class S3Folder:
    """An object folder: a bucket and a prefix. Names are relative to it.

    All errors are `WriteError`, with the object's URL.
    """

    def __init__(self, url: str, retries: Retries | None = None) -> None:
        """Take `s3://bucket/run`; nothing is asked of the service yet.

        Raises:
            UsageError: If it names no bucket.
        """
        scheme, _, path = url.partition("://")
        bucket, _, key = path.rstrip("/").partition("/")
        if scheme.lower() not in ("s3", "s3a") or not bucket:
            raise UsageError(
                f"`{url}` is not the name of a folder in a bucket",
                where="--output",
                next_step="pass `s3://BUCKET/FOLDER`",
            )
        self.url = url.rstrip("/")
        self._bucket = bucket
        self._prefix = f"{key}/" if key else ""
        self._retries = retries or Retries()

    def get(self, name: str) -> bytes | None:
        """Read a small object; None if it is not there."""
        found = self._retries.run(lambda: self._find(name), self._url(name), _LOOKING)
        return found[0] if found else None

    def look(self, name: str) -> tuple[int, str] | None:
        """Return an object's size and ETag; None if it is not there.

        A bucket that is not there looks like an object that is not: the answer has no body.
        """
        answer = self._ask("head_object", name, purpose=_LOOKING, expected=_NOT_THERE)
        return (answer["ContentLength"], answer["ETag"]) if answer else None

    def put(self, name: str, data: bytes) -> str:
        """Write an object, whether it is there or not; return its ETag."""
        etag: str = self._ask("put_object", name, Body=data, ContentMD5=encode_md5(data))["ETag"]
        return etag

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write an object that is not there; tell whether it was not.

        After a try without an answer, an object that holds the same counts as written by it: where
        it matters who wrote it, no two must write the same.
        """
        return self._put_if(name, data, IfNoneMatch="*") is not None

    def put_if_match(self, name: str, data: bytes, etag: str) -> str | None:
        """Replace the object that has this ETag; return the new one, None if it changed or is gone.

        After a try without an answer, an object that holds the same counts as written by it.
        """
        return self._put_if(name, data, IfMatch=etag)

    def iter_names(self, prefix: str = "", *, is_deep: bool = True) -> Iterator[tuple[str, int]]:
        """Yield names and sizes of the objects that begin with `prefix`, in the service's order.

        If it is not deep, names with a slash behind the prefix are left out, and not asked for.

        That is the order of keys, but for services that keep a tree: SeaweedFS sorts `a/b` before
        `a-b`.
        """
        wanted: dict[str, Any] = {"Prefix": self._prefix + prefix, "MaxKeys": _MAX_LISTED}
        if not is_deep:
            wanted["Delimiter"] = "/"
        while True:
            page = self._ask("list_objects_v2", purpose=_LOOKING, **wanted)
            for entry in page.get("Contents", ()):
                # Some tools mark a folder by an object of its name.
                if name := entry["Key"].removeprefix(self._prefix):
                    yield name, entry["Size"]
            if not page["IsTruncated"]:
                return
            wanted["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, a thousand in a request; those that are not there are no error."""
        names = iter(names)
        while batch := list(islice(names, _MAX_LISTED)):
            self._delete_listed([name for name in batch if _fits_xml(self._prefix + name)])
            for name in batch:
                if not _fits_xml(self._prefix + name):
                    self._ask("delete_object", name, purpose=_DELETING, expected=_NOT_THERE)

    def begin_upload(self, name: str) -> str:
        """Begin an object that is sent in parts; return the upload's id.

        A try whose answer is lost leaves an upload behind that only `iter_uploads` knows.
        """
        upload_id: str = self._ask("create_multipart_upload", name)["UploadId"]
        return upload_id

    def upload_part(self, name: str, upload_id: str, number: int, data: bytes | memoryview) -> str:
        """Send one part, which the service checks; return its ETag.

        Args:
            name: The object's name.
            upload_id: Its upload.
            number: Counted from 1; sent again, a part replaces the one before.
            data: 5 MiB or more, but for the last part. It is not copied.
        """
        # Content-MD5 is the one check that every service makes.
        wanted: dict[str, Any] = {
            "UploadId": upload_id,
            "PartNumber": number,
            "ContentMD5": encode_md5(data),
        }

        def attempt() -> str:
            answer = self._call(
                *("upload_part", name, _WRITING, _NO_UPLOAD), Body=_View(data), **wanted
            )
            if answer is None:
                raise self._lost(name)
            etag: str = answer["ETag"]
            return etag

        return self._retries.run(attempt, f"{self._url(name)}, part {number}", _WRITING)

    def complete_upload(self, name: str, upload_id: str, etags: Sequence[str]) -> None:
        """Make the object of its parts; completed before, it is looked at instead.

        Args:
            name: The object's name.
            upload_id: Its upload.
            etags: Those of all parts, in order.

        Raises:
            LostUploadError: If the upload is gone and the object is not the one of these parts. So
                it is, too, where ETags are no checksums (encrypted with a key of the user's): what
                cannot be told is not taken for granted.
        """
        parts = [{"PartNumber": idx, "ETag": etag} for idx, etag in enumerate(etags, 1)]

        answer = self._ask(
            *("complete_multipart_upload", name),
            expected=_NO_UPLOAD,
            UploadId=upload_id,
            MultipartUpload={"Parts": parts},
        )
        if answer is not None:
            return
        found = self.look(name)
        if found is None or found[1].strip('"') != join_etags(etags):
            raise self._lost(name)

    def abort_upload(self, name: str, upload_id: str) -> None:
        """Throw an upload and its parts away; one that is gone is no error."""
        self._ask(
            *("abort_multipart_upload", name),
            purpose=_DELETING,
            expected=_NO_UPLOAD,
            UploadId=upload_id,
        )

    def iter_uploads(self) -> Iterator[tuple[str, str]]:
        """Yield name and id of every upload under the folder that was begun and not ended.

        Names with control characters may come out wrong: SeaweedFS says that it encodes them, and
        does not.
        """
        wanted: dict[str, Any] = {"Prefix": self._prefix, "MaxUploads": _MAX_LISTED}
        while True:
            page = self._ask("list_multipart_uploads", purpose=_LOOKING, **wanted)
            for entry in page.get("Uploads", ()):
                yield entry["Key"].removeprefix(self._prefix), entry["UploadId"]
            if not page["IsTruncated"]:
                return
            # Those that were given and no others: SeaweedFS sorts by the id alone.
            for marker in ("KeyMarker", "UploadIdMarker"):
                wanted[marker] = page.get(f"Next{marker}", "")

    def _put_if(self, name: str, data: bytes, **condition: str) -> str | None:
        num_tries = 0

        def attempt() -> str | None:
            nonlocal num_tries
            num_tries += 1
            wanted = {"Body": data, "ContentMD5": encode_md5(data), **condition}
            expected = (*_NOT_MET, *_NOT_THERE)
            answer = self._call("put_object", name, _WRITING, expected, **wanted)
            if answer is not None:
                return str(answer["ETag"])
            # An earlier try may have met the condition, and its answer may be lost.
            found = self._find(name) if num_tries > 1 else None
            return found[1] if found and found[0] == data else None

        return self._retries.run(attempt, self._url(name), _WRITING)

    def _find(self, name: str) -> tuple[bytes, str] | None:
        answer = self._call("get_object", name, _LOOKING, _NOT_THERE)
        return (load_body(answer["Body"]), answer["ETag"]) if answer else None

    def _delete_listed(self, names: list[str]) -> None:
        objects = [{"Key": self._prefix + name} for name in names]

        def attempt() -> None:
            answer = self._call("delete_objects", None, _DELETING, Delete={"Objects": objects})
            if "Deleted" not in answer and "Errors" not in answer:
                raise PassingError("the server's answer is cut")
            for error in answer.get("Errors", ()):
                if error.get("Code") not in _NOT_THERE:
                    url = f"{self.url}/{error.get('Key', '').removeprefix(self._prefix)}"
                    raise explain_error(url, error, purpose=_DELETING)

        if objects:
            self._retries.run(attempt, self.url, _DELETING)

    def _ask(
        self,
        method: str,
        name: str | None = None,
        *,
        purpose: Purpose = _WRITING,
        expected: Collection[str] = (),
        **arguments: Any,
    ) -> Any:
        """Make a request as often as it takes."""
        return self._retries.run(
            lambda: self._call(method, name, purpose, expected, **arguments),
            self._url(name),
            purpose,
        )

    def _call(
        self,
        method: str,
        name: str | None,
        purpose: Purpose,
        expected: Collection[str] = (),
        **arguments: Any,
    ) -> Any:
        """Make a request once, about an object or about the folder."""
        place = {"Bucket": self._bucket}
        if name is not None:
            place["Key"] = self._prefix + name
        answer = call_s3(
            *(self._url(name), method, {**place, **arguments}), purpose=purpose, expected=expected
        )
        if answer is not None:
            is_whole = all(answer.get(key, "") != "" for key in _NEEDED.get(method, ()))
            etag = answer.get("ETag", "")
            if not is_whole or (etag.startswith('"') and not etag.endswith('"', 1)):
                raise PassingError("the server's answer is cut")
        return answer

    def _url(self, name: str | None) -> str:
        return self.url if name is None else f"{self.url}/{name}"

    def _lost(self, name: str) -> LostUploadError:
        return LostUploadError(
            "the upload is gone, and its object was not made",
            where=self._url(name),
            next_step=f"see that nothing else writes here or ends uploads{_AFTER}",
        )


class _View(io.RawIOBase):
    """Bytes as a file, without a copy of them: botocore takes no memoryview."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data).cast("B")
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._data) - self._at)
        view[:count] = self._data[self._at : self._at + count]
        self._at += count
        return count

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence, len(self._data))
        return self._at


def join_etags(etags: Sequence[str]) -> str:
    """Compute the ETag of an object from those of its parts, as S3 does; "" if they are no MD5."""
    try:
        digests = b"".join(bytes.fromhex(etag.strip('"')) for etag in etags)
    except ValueError:
        return ""
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(etags)}"


def _fits_xml(name: str) -> bool:
    """Tell whether a name can stand in a list of objects to delete."""
    return not _OUTSIDE_XML.search(name)
