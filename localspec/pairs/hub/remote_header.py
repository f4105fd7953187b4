"""The header of a model that is still on the hub: read by range, its bytes kept as the part files' first."""

from __future__ import annotations

from localspec.ground.errors import DownloadFailed
from localspec.pairs.gguf.header import NeedMoreBytes, join_split, parse_header
from localspec.pairs.gguf.model_info import ModelInfo
from localspec.pairs.hub.download import Download

_FIRST_BYTES = 2 << 20
"""Of a header asked for at once; big vocabularies need 6 MB, small ones less than 2."""
_NEXT_BYTES = 64 << 10
"""Of the second and later shards, which repeat no vocabulary."""


def remote_model(downloads: tuple[Download, ...]) -> ModelInfo:
    """The header of a model that is not here yet, all shards of it."""
    parts = [remote_header(downloads[0], _FIRST_BYTES)]
    if parts[0].split_count == 1 and len(downloads) == 1:
        return parts[0]
    return join_split(parts + [remote_header(download, _NEXT_BYTES) for download in downloads[1:]])


def remote_header(download: Download, need: int) -> ModelInfo:
    """The header of one file; its bytes stay as the beginning of the part file. Asks for `need` at first."""
    while True:
        data = download.prefix(need)
        source = f"{download.item.repo}/{download.item.path}"
        try:
            return parse_header(data, source=source, file_size=download.size)
        except NeedMoreBytes as more:
            if len(data) < need:
                raise DownloadFailed(f"{source} ends inside its header", "Try another repository") from None
            need = max(more.need + (1 << 18), 2 * len(data))
