"""Files of a folder or an object store, as pyarrow reads and writes them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from app.errors import NotNow, UserError, reason

S3 = {
    "AWS_ENDPOINT": "endpoint_override",
    "AWS_ENDPOINT_URL": "endpoint_override",
    "AWS_DEFAULT_REGION": "region",
    "AWS_REGION": "region",
    "AWS_ACCESS_KEY_ID": "access_key",
    "AWS_SECRET_ACCESS_KEY": "secret_key",
    "AWS_SESSION_TOKEN": "session_token",
}
"""Arguments of pyarrow's S3 by the options of delta-rs that mean the same."""
ATTEMPTS = 10
"""Of a request that a store does not answer, or asks to be made more slowly."""
SILENT = re.compile("error sending request|AWS Error NETWORK_CONNECTION")
REFUSED = {
    "InvalidAccessKeyId|INVALID_ACCESS_KEY_ID": "the store does not know the key"
    "\nstorage_options.AWS_ACCESS_KEY_ID has it, or the variable of this name",
    "SignatureDoesNotMatch|SIGNATURE_DOES_NOT_MATCH": "the store refuses the secret of the key"
    "\nstorage_options.AWS_SECRET_ACCESS_KEY has it, or the variable of this name",
    "NoSuchBucket|NO_SUCH_BUCKET": "the store has no such bucket\nmake it, or name another one",
    "403 Forbidden|ACCESS_DENIED|lacked the necessary privileges": "the store refuses access (403)"
    "\nstorage_options.AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are its login, whose user needs the"
    " rights to read, write, list and delete there",
}
"""What a store says of a request, and what the user is told; delta-rs and pyarrow have texts of their own."""


def of_store(error: object) -> UserError | None:
    """An error of a store that does not answer or refuses a request, as the user is told it; None for
    others."""
    for known, told in REFUSED.items():
        if re.search(known, str(error)):
            return UserError(f"warehouse: {told}")
    if SILENT.search(str(error)):
        return NotNow(
            f"warehouse: the store does not answer ({reason(error)})\n"
            "storage_options.AWS_ENDPOINT_URL is its address; start again when it does"
        )
    return None


def file_system(location: str, options: Mapping[str, str]) -> Any:
    """The file system of a folder, or of a location in a store with the options that delta-rs opens
    tables with; its connections are kept.
    """
    return _opened(location, tuple(sorted(options.items())))


@lru_cache(maxsize=100)
def _opened(location: str, options: tuple[tuple[str, str], ...]) -> Any:
    import pyarrow as pa
    import pyarrow.fs as pafs
    from deltalake.fs import DeltaStorageHandler

    if "://" not in location:
        return pafs.SubTreeFileSystem(location, pafs.LocalFileSystem())

    class Handler(DeltaStorageHandler):
        """File system of delta-rs, adapted: its streams accept bytes but no buffers of pyarrow."""

        def open_output_stream(
            self, path: str, metadata: dict[str, str] | None = None
        ) -> pa.NativeFile:
            if s3 is None:
                return pa.PythonFile(_Output(self._handler.open_output_stream(path, metadata)))
            return s3.open_output_stream(f"{root.strip('/')}/{path}", metadata=metadata)

    root, s3 = location.partition("://")[2], _writing(location, dict(options))
    return pafs.PyFileSystem(Handler(location, dict(options)))


def _writing(location: str, options: Mapping[str, str]) -> Any:
    """pyarrow's S3, which writes a small object by one request, delta-rs by three; None for another
    store, and for options that it does not know.
    """
    import pyarrow.fs as pafs

    given = {**os.environ, **{name.upper(): value for name, value in options.items()}}
    if location.partition("://")[0].lower() not in ("s3", "s3a") or (
        {name.upper() for name in options} - {*S3, "AWS_ALLOW_HTTP"}
    ):
        return None
    found = {argument: given[name] for name, argument in S3.items() if given.get(name)}
    scheme, _, host = found.pop("endpoint_override", "").rpartition("://")
    return pafs.S3FileSystem(
        **found,
        endpoint_override=host or None,
        scheme=scheme or None,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        allow_delayed_open=True,
    )


class _Output:
    """A stream that accepts buffers."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: Any) -> Any:
        """Write an object with the buffer protocol."""
        return self._stream.write(bytes(data))
