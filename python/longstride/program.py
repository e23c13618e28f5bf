"""Where the program is that the package brings."""
import os

from .errors import InternalError


def program() -> str:
    path = os.environ.get("LONGSTRIDE_PROGRAM") or os.path.join(os.path.dirname(__file__), "bin", "longstride")
    if not os.access(path, os.X_OK):
        raise InternalError(f"{path} is missing: the package is not complete")
    return path
