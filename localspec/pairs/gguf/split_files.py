"""Split models on this disk: from one file's name to the whole set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localspec.ground.errors import InvalidInput
from localspec.pairs.gguf.header import join_split, read_header
from localspec.pairs.gguf.model_info import ModelInfo
from localspec.pairs.gguf.quants import split_quant
from localspec.pairs.store.listing import shard_of


def local_set(path: Path) -> tuple[Path, ...]:
    """All files of the model that `path` is, or is one shard of, in order.

    InvalidInput when shards are missing. An unsplit file is returned as it is, existing or not.
    """
    suffix = path.suffix
    name, _, count = shard_of(path.name.removesuffix(suffix))
    if count == 1:
        return (path,)
    separator = path.name[len(name) : path.name.index("-of-") - 5]
    wanted = [path.with_name(f"{name}{separator}{n:05}-of-{count:05}{suffix}") for n in range(1, count + 1)]
    there = [one for one in wanted if one.exists()]
    if len(there) != count:
        missing = next(one for one in wanted if not one.exists())
        raise InvalidInput(
            f"{name} is incomplete {len(there)}/{count}: {missing.name} is missing",
            f"Put it into {path.parent}, or pull the model again",
        )
    return tuple(wanted)


def read_model(paths: Sequence[Path]) -> ModelInfo:
    """The header of a whole model; UnreadableFile when its files are not exactly one set."""
    parts = [read_header(path) for path in paths]
    return parts[0] if len(parts) == 1 and parts[0].split_count == 1 else join_split(parts)


def model_stem(path: Path) -> str:
    """A model file's name without shard numbers, quantization and ending."""
    return split_quant(shard_of(path.name.removesuffix(".gguf"))[0])[0]
