"""Types in the signatures of the package, for type checkers and for annotations of one's own. Those of arrays are in
arrays.py, which needs numpy."""
from collections.abc import Mapping
from os import PathLike
from typing import Any, Protocol, TypeAlias, TypedDict

Path: TypeAlias = str | PathLike[str]
Size: TypeAlias = int | str  # 131072 or "128K"
# Settings of a section, and sections. Type checkers infer `object` for the values of most dicts, so these are not told
# apart; the engine names those that are wrong.
Section: TypeAlias = Mapping[str, Any]
Config: TypeAlias = Mapping[str, Any]
Record: TypeAlias = dict[str, Any]  # what callbacks get; keys may be added later


class View(Protocol):
    """Memory of the engine, for torch.from_dlpack, numpy.from_dlpack and the like. No copy is made."""

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


class EngineSettings(TypedDict, total=False):
    """Keyword arguments of Engine: settings of `longstride train` (docs/configuration.md)."""

    context: Size | None
    chunk: Size | None
    page: Size | None
    seed: int | None
    keep_chunks: int | None
    rebuild_feed_forward: bool | None
    device: str | None
    threads: int | None
    lora: Section | None
    memory: Section | None
    optimizer: Section | None
    numerics: Section | None
    attention: Section | None
