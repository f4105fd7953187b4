"""Where localspec keeps its own files: one folder a purpose, XDG and its like honoured.

Model files are not here: they live in the ordinary Hugging Face cache, or wherever the person keeps them.
"""

from __future__ import annotations

from pathlib import Path

import platformdirs

APP = "localspec"


def config_folder() -> Path:
    """Settings a person edits: config.toml, models.toml."""
    return Path(platformdirs.user_config_dir(APP, appauthor=False))


def data_folder() -> Path:
    """What must not be lost: pair locks, chat sessions."""
    return Path(platformdirs.user_data_dir(APP, appauthor=False))


def state_folder() -> Path:
    """Logs, measured profiles, pid files."""
    return Path(platformdirs.user_state_dir(APP, appauthor=False))


def cache_folder() -> Path:
    """What can be made again."""
    return Path(platformdirs.user_cache_dir(APP, appauthor=False))
