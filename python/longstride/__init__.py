"""longstride: language models trained on contexts of millions of tokens, on one device.

    engine = longstride.Engine("model", context="128K", lora={"rank": 16})   # a loop of one's own
    longstride.train("run.toml")                                             # or a whole run
"""
import importlib

from .errors import Error, InternalError

__all__ = ["Engine", "Result", "train", "plan", "callbacks", "Error", "InternalError", "__version__"]

TYPE_CHECKING = False  # type checkers take it for True by its name; `typing` is most of what an import would cost
if TYPE_CHECKING:
    from . import callbacks
    from ._core import __version__
    from .engine import Engine, Result
    from .run import plan, train
else:
    # Loaded when they are used, so that an import is quick.
    LATER = {"Engine": "engine", "Result": "engine", "train": "run", "plan": "run", "__version__": "_core"}

    def __getattr__(name):
        if name == "callbacks":
            return importlib.import_module("longstride.callbacks")
        if name in LATER:
            return getattr(importlib.import_module(f"longstride.{LATER[name]}"), name)
        raise AttributeError(f"module 'longstride' has no attribute {name!r}")
