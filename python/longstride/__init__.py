"""longstride: language models trained on contexts of millions of tokens, on one device."""
from .errors import Error, InternalError

__all__ = ["Engine", "Result", "Error", "InternalError", "__version__"]


def __getattr__(name):
    # The engine is loaded when it is used, so that an import is quick.
    if name in ("Engine", "Result"):
        from . import engine
        return getattr(engine, name)
    if name == "__version__":
        from . import _core
        return _core.__version__
    raise AttributeError(f"module 'longstride' has no attribute {name!r}")
