"""config.toml: read whole, changed one line at a time, never at the cost of what a person wrote into it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from localspec.ground.atomic_write import write_atomically
from localspec.ground.errors import InvalidInput, UnreadableFile
from localspec.ground.locations import config_folder
from localspec.ground.terminal import one_line

_MOST_BYTES = 1 << 20


def path() -> Path:
    """Where it is, or would be."""
    return config_folder() / "config.toml"


def read(file: Path) -> dict[str, Any]:
    """Its tables; nothing when there is no such file. Raises UnreadableFile that says where it is damaged."""
    try:
        return tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError as error:
        raise UnreadableFile(f"{file} is not valid TOML: {one_line(str(error))}", "Correct it, or rename it") from None


def flat(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(`serve.port`, value) of every line."""
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def change(file: Path, key: str, value: Any) -> None:
    """Give `key` (`temp`, `serve.port`) this value, None = take its line out; all else stays, comments included.

    Raises UnreadableFile when the file is damaged: it is left as it is.
    """
    before = read(file)
    table = key.rpartition(".")[0]
    if not isinstance(before.get(table, {}), Mapping):
        raise InvalidInput(f"{table} in {file} is a value, and has to be a table", f"Write a line [{table}] instead")
    text = _edited(_text(file), key, value)
    if tomllib.loads(text) != _changed(before, key, value):
        raise InvalidInput(f"{file} is written in a way that {key} cannot be changed in", "Change it in an editor")
    real = Path(os.path.realpath(file))  # a link to a file of one's own stays a link
    mode = real.stat().st_mode if real.exists() else 0o600
    write_atomically(real, text.replace("\r\n", "\n") if os.linesep == "\r\n" else text)
    real.chmod(mode & 0o777)


def expanded(value: Any) -> Any:
    """A text that begins with `~`, with the home folder in its place."""
    return os.path.expanduser(value) if isinstance(value, str) else value


def _edited(text: str, key: str, value: Any) -> str:
    import tomlkit

    document: Any = tomlkit.parse(text)
    table_name, _, name = key.rpartition(".")
    holder = document
    if table_name:
        if table_name not in document:
            if value is None:
                return text
            document[table_name] = tomlkit.table()
        holder = document[table_name]
    spelled = _spelled(holder, name)
    if value is not None:
        holder[spelled] = value
    elif spelled in holder:
        del holder[spelled]
    return tomlkit.dumps(document)


def _changed(tables: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """What reading the changed file has to give."""
    table_name, _, name = key.rpartition(".")
    holder = dict(tables.get(table_name, {})) if table_name else dict(tables)
    spelled = _spelled(holder, name)
    if value is not None:
        holder[spelled] = value
    else:
        holder.pop(spelled, None)
    if not table_name:
        return holder
    return tables if value is None and table_name not in tables else {**tables, table_name: holder}


def _spelled(holder: Mapping[str, Any], name: str) -> str:
    """The key as the file writes it: `top_k` and `Top-K` are top-k."""
    if name in holder:
        return name
    return next((there for there in holder if there.lower().replace("_", "-") == name), name)


def _text(file: Path) -> str:
    try:
        with open(file, "rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise UnreadableFile(f"cannot read {file}: {error.strerror}", "Check the path and its rights") from None
    if len(data) > _MOST_BYTES:
        raise UnreadableFile(f"{file} is larger than 1 MiB", "That is no file of settings: rename it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise UnreadableFile(f"{file} is not UTF-8: {where}", "Save it as UTF-8") from None
