"""Local paths from the paths and URLs that Spark users write."""

from __future__ import annotations

import re

from toolkit.errors import UsageError

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//[^/]*)?(/.*)?")


def local_path(path: str) -> str:
    """A path without its scheme: ``file:/data``, ``file:///data``, ``dbfs:/Volumes/...``.

    Raises
    ------
    UsageError
        For a scheme without a local folder (``s3://``, ``abfss://``, ``hdfs://``).
    """
    found = SCHEME.fullmatch(path)
    if not found or not (found[2] or found[3]):
        return path
    scheme, host, rest = found[1].lower(), (found[2] or "//")[2:], found[3] or "/"
    if scheme == "file" and host in {"", "localhost"}:
        return rest
    if scheme == "dbfs" and not host:
        return rest if rest.startswith("/Volumes/") else f"/dbfs{rest}"
    raise UsageError(
        f"{path} is not a local path.",
        means="Executors read segments as local files.",
        do="Use the path of a mounted volume, such as /Volumes/catalog/schema/volume/logs, or copy the files there.",
    )
