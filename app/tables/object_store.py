"""Files of an object store, as pyarrow reads and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def object_store(location: str, options: Mapping[str, str]) -> Any:
    """The file system of a location, with the options that delta-rs opens tables with."""
    import pyarrow as pa
    import pyarrow.fs as pafs
    from deltalake.fs import DeltaStorageHandler

    class Handler(DeltaStorageHandler):
        """File system of delta-rs, adapted: its streams accept bytes but no buffers of pyarrow."""

        def open_output_stream(
            self, path: str, metadata: dict[str, str] | None = None
        ) -> pa.PythonFile:
            return pa.PythonFile(_Output(self._handler.open_output_stream(path, metadata)))

    return pafs.PyFileSystem(Handler(location, dict(options)))


class _Output:
    """A stream that accepts buffers."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: Any) -> Any:
        """Write an object with the buffer protocol."""
        return self._stream.write(bytes(data))
