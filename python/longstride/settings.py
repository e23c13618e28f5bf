"""Settings of `longstride train`, as Python values."""
import os
from typing import Any

from .annotations import Path, Section


def text_of(value: Any) -> str:
    """A value as TOML; strings stay as they are, the program quotes them itself."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(quoted(v) if isinstance(v, (str, os.PathLike)) else text_of(v) for v in value) + "]"
    return str(os.fspath(value) if isinstance(value, os.PathLike) else value)


def quoted(text: Path) -> str:
    return '"' + os.fspath(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def section(name: str, values: Section) -> list[str]:
    """`name.key=value` for all values that are given."""
    return [f"{name}.{key}={text_of(value)}" for key, value in values.items() if value is not None]
