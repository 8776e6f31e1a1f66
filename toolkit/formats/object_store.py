"""Files and folders of object stores (S3, Google Cloud Storage, Azure), in the methods of ``pathlib``.

Objects are read in ranges through ``pyarrow.fs``, with the credentials and endpoints that the environment sets for
each store. What fails is an `OSError` with a sentence, as for a local file, which never repeats a credential.
"""

from __future__ import annotations

import datetime as dt
import errno
import functools
import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit.errors import SetupError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

URI = re.compile(r"(?P<scheme>s3a?|gs|abfss?)://(?:(?P<user>[^/@]*)@)?(?P<host>[^/@?#]+)(?:/(?P<key>.*))?", re.DOTALL)
ANONYMOUS = "anonymous"
AZURE_HOST = re.compile(r"(?P<account>[a-z0-9]+)\.(?:dfs|blob)\.(?P<domain>.+)")
FIRST_READ, LARGEST_READ = 1 << 16, 1 << 23  # bytes requested at least, by a first and by a later read
ATTEMPTS = 3  # of each read, besides what pyarrow repeats
GCS_SECONDS = 15  # how long pyarrow repeats a request to Google; 15 minutes by default

CODE = re.compile(r"AWS Error ([A-Z_]+)|Status\(([A-Z_]+)|Error Code: (\w+)|HTTP status (?:code )?(\d+)")
HTTP_STATUS = re.compile(r"HTTP status (?:code )?(\d+)|\b(401|403|404)\b")
REFUSED = {
    "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "INVALID_CLIENT_TOKEN_ID", "EXPIRED_TOKEN",
    "INVALID_SIGNATURE", "MISSING_AUTHENTICATION_TOKEN", "UNRECOGNIZED_CLIENT", "PERMISSION_DENIED", "UNAUTHENTICATED",
    "AuthenticationFailed", "AuthorizationFailure", "NoAuthenticationInformation", "401", "403",
}  # fmt: skip
MISSING = {
    "NO_SUCH_BUCKET",
    "NO_SUCH_KEY",
    "RESOURCE_NOT_FOUND",
    "NOT_FOUND",
    "BlobNotFound",
    "ContainerNotFound",
    "404",
}
UNREACHABLE = {"NETWORK_CONNECTION", "REQUEST_TIMEOUT", "UNAVAILABLE", "DEADLINE_EXCEEDED"}

CREDENTIALS = {
    "s3": "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; s3://anonymous@bucket reads a public "
    "bucket, and AWS_ENDPOINT_URL names another server.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS to a file of credentials; gs://anonymous@bucket reads a public bucket.",
    "abfss": "Log in with az login, or set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_TENANT_ID, "
    "AZURE_CLIENT_ID and AZURE_CLIENT_SECRET; AZURE_STORAGE_ENDPOINT names another server.",
}
FAMILY = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "abfss", "abfss": "abfss"}


class ObjectStat(NamedTuple):
    """An object or folder, in the fields of ``os.stat_result``.

    An object is never changed, only replaced: its modification time is when it was uploaded, and identifies it.
    """

    st_mode: int
    st_size: int
    st_mtime_ns: int
    st_ino: int


FOLDER = ObjectStat(stat.S_IFDIR, 0, 0, 0)


class ObjectEntry(NamedTuple):
    """An entry of a folder, in the methods of ``os.DirEntry``."""

    name: str
    status: ObjectStat

    def is_file(self) -> bool:
        """Whether it is an object, and no folder."""
        return stat.S_ISREG(self.status.st_mode)

    def stat(self) -> ObjectStat:
        """Size and time, as of the listing."""
        return self.status


@dataclass(frozen=True, slots=True, order=True)
class ObjectPath:
    """An object, or the folder of those whose keys begin so; in the methods of ``pathlib.Path`` that reading takes."""

    store: str  # the URI of the bucket or container
    key: str = ""  # the rest of the URI; empty for the bucket

    def __str__(self) -> str:
        return f"{self.store}/{self.key}" if self.key else self.store

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.store, f"{self.key}/{name}" if self.key else name)

    @property
    def name(self) -> str:
        """The part of the key after its last slash."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """That name without its last ending."""
        return self.name.rpartition(".")[0]

    @property
    def parent(self) -> ObjectPath:
        """Its folder; the bucket for itself."""
        return ObjectPath(self.store, self.key.rpartition("/")[0])

    @property
    def credentials(self) -> str:
        """Where the store looks for credentials, as advice."""
        return CREDENTIALS[FAMILY[self.store.partition(":")[0]]]

    def absolute(self) -> ObjectPath:
        """The path itself."""
        return self

    def exists(self) -> bool:
        """Whether it is an object or folder; false if that cannot be seen, too, as in ``pathlib`` of Python 3.12."""
        with suppress(OSError):
            self.stat()
            return True
        return False

    def is_dir(self) -> bool:
        """Whether it is a folder. Raises OSError if the store cannot be read."""
        with suppress(FileNotFoundError):
            return stat.S_ISDIR(self.stat().st_mode)
        return False

    def stat(self) -> ObjectStat:
        """Size and time. Raises OSError if it does not exist, or the store cannot be read."""
        from pyarrow.fs import FileType

        with _in_words(self):
            [info] = _file_system(self.store).get_file_info([self._address])
        if info.type == FileType.NotFound:
            raise _missing()
        return _status(info)

    def scandir(self) -> Iterator[ObjectEntry]:
        """The entries of a folder. Raises OSError if it does not exist, or the store cannot be read."""
        from pyarrow.fs import FileSelector

        # pyarrow lists no folders of Google's that were not made as such: their objects show them.
        selector = FileSelector(self._address, recursive=self.store.startswith("gs:"))
        with _in_words(self):
            infos = _file_system(self.store).get_file_info(selector)
        found: dict[str, ObjectStat] = {}
        for info in infos:
            name, _, below = info.path.removeprefix(f"{self._address}/").partition("/")
            found[name] = FOLDER if below else _status(info)
        return iter([ObjectEntry(name, status) for name, status in found.items()])

    def open(
        self,
        mode: str = "rb",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """Open an object for reading. Raises OSError if it does not exist, or the store cannot be read."""
        file = ObjectFile(self)
        if buffering == 0:
            return file
        buffered = io.BufferedReader(file)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        """All of an object. Raises OSError if it does not exist, or the store cannot be read."""
        with ObjectFile(self) as file:
            return file.readall()

    @property
    def _address(self) -> str:
        """What pyarrow calls it: bucket or container, and key."""
        found = URI.fullmatch(self.store)
        assert found
        bucket = found["user"] if FAMILY[found["scheme"]] == "abfss" else found["host"]
        return f"{bucket}/{self.key}" if self.key else bucket


class ObjectFile(io.RawIOBase):
    """An object that is open for reading: one range at a time is in memory, of `LARGEST_READ` or of one read at most.

    A read that goes on where the last one ended asks for twice as much; another one, for little more than it takes.
    A read that fails is repeated, as connections break.

    Raises OSError if it does not exist, or the store cannot be read.
    """

    def __init__(self, path: ObjectPath) -> None:
        super().__init__()
        self._path = path
        with _in_words(path):
            self._object = _file_system(path.store).open_input_file(path._address)
            self.size: int = self._object.size()
        self._at = self._start = 0
        self._kept = bytearray()
        self._ahead = FIRST_READ

    @property
    def range_in_memory(self) -> range:
        """The bytes that are read without a request."""
        return range(self._start, self._start + len(self._kept))

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position, counted from the start, from here or from the end."""
        self._at = position + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        return self._at

    def tell(self) -> int:
        """The position."""
        return self._at

    def readinto(self, target: Any, /) -> int:
        """Fill the target as far as the range in memory reaches, or else read the next range.

        Raises OSError if the object cannot be read: `FileNotFoundError` if it was deleted meanwhile.
        """
        view = memoryview(target).cast("B")
        if self._at not in self.range_in_memory:
            goes_on = self._at == self.range_in_memory.stop
            self._ahead = min(2 * self._ahead, LARGEST_READ) if goes_on else FIRST_READ
            size = min(max(len(view), self._ahead), self.size - self._at)
            self._kept = self._read(self._at, size) if size > 0 else bytearray()
            self._start = self._at
        begin = self._at - self._start
        count = min(len(view), len(self._kept) - begin)
        view[:count] = memoryview(self._kept)[begin : begin + count]
        self._at += count
        return count

    def readall(self) -> bytes:
        """The rest of the object, in one request."""
        found = self._read(self._at, max(self.size - self._at, 0))
        self._at += len(found)
        return bytes(found)

    def close(self) -> None:
        """Forget the object."""
        if not self.closed:
            self._kept = bytearray()
            self._object.close()
        super().close()

    def _read(self, position: int, size: int) -> bytearray:
        """Read a range completely.

        After a response without a body, pyarrow returns memory that nothing was written to, as if it were the range.
        So the last byte is another one than before: if it is not, the range is read again over another one.
        """
        for attempt in range(1, ATTEMPTS + 1):
            found = bytearray(bytes([attempt]) * size)
            try:
                with _in_words(self._path):
                    self._object.seek(position)
                    count = self._object.readinto(found)
                if not size or (count == size and found[-1] != attempt):
                    return found
            except OSError as exc:
                self._path.stat()  # what was deleted is named so
                if attempt == ATTEMPTS or isinstance(exc, PermissionError):
                    raise
        raise OSError(errno.EIO, f"{self._path.store} returns less than it announces")


@functools.cache
def _file_system(store: str) -> FileSystem:
    """The file system of a bucket or container, by the environment."""
    try:
        from pyarrow import fs

        found = URI.fullmatch(store)
        assert found
        family, environment = FAMILY[found["scheme"]], os.environ
        if family == "gs":
            scheme, _, address = environment.get("STORAGE_EMULATOR_HOST", "").rpartition("://")
            return fs.GcsFileSystem(
                anonymous=found["user"] == ANONYMOUS,
                endpoint_override=address or None,
                scheme=(scheme or "http") if address else None,
                retry_time_limit=dt.timedelta(seconds=GCS_SECONDS),
            )
        if family == "abfss":
            host = AZURE_HOST.fullmatch(found["host"])
            assert host
            account = host["account"]
            scheme, _, address = environment.get("AZURE_STORAGE_ENDPOINT", "").rpartition("://")
            server = address.rstrip("/").removesuffix(f"/{account}")  # pyarrow appends the account
            return fs.AzureFileSystem(
                account,
                account_key=environment.get("AZURE_STORAGE_KEY"),
                sas_token=environment.get("AZURE_STORAGE_SAS_TOKEN"),
                blob_storage_authority=server or f".blob.{host['domain']}",
                dfs_storage_authority=server or f".dfs.{host['domain']}",
                blob_storage_scheme=scheme or "https",
                dfs_storage_scheme=scheme or "https",
            )
        endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        if endpoint is None and region is None:
            with suppress(OSError):  # the next request says why
                region = fs.resolve_s3_region(found["host"])
        return fs.S3FileSystem(anonymous=found["user"] == ANONYMOUS, region=region, endpoint_override=endpoint)
    except (ImportError, AttributeError) as exc:
        raise SetupError(
            f"This pyarrow cannot read {store}.",
            means="It was built without that store.",
            do="Install a newer pyarrow, from PyPI or conda-forge, or copy the files.",
        ) from exc


def _status(info: FileInfo) -> ObjectStat:
    modified = info.mtime_ns or 0
    return ObjectStat(stat.S_IFREG if info.is_file else stat.S_IFDIR, info.size or 0, modified, modified)


def _missing() -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


@contextmanager
def _in_words(path: ObjectPath) -> Iterator[None]:
    """Replace an error of pyarrow, whose text can repeat a request, by one with the code of the store."""
    from pyarrow import ArrowException

    try:
        yield
    except FileNotFoundError:
        raise _missing() from None
    except (OSError, ValueError, ArrowException) as exc:
        text = str(exc)
        codes = {code for found in CODE.findall(text) for code in found if code}
        codes |= {code for found in HTTP_STATUS.findall(text) for code in found if code}
        code = min(codes, default="")
        named = f" ({code})" if code else ""
        if codes & MISSING:
            raise _missing() from None
        if codes & REFUSED or "credential" in text.lower():  # that were not found
            raise PermissionError(errno.EACCES, f"{path.store} refuses access{named}") from None
        if codes & UNREACHABLE:
            raise OSError(errno.EIO, f"{path.store} cannot be reached{named}") from None
        raise OSError(errno.EIO, f"{path.store} fails{named}") from None
