"""Files: checksums, writing whole or not at all, and a full disk; and packages that may be missing."""
import contextlib
import errno
import importlib
import json
import os

from ..errors import Error

FULL = {errno.ENOSPC: "no space is left", errno.EDQUOT: "the quota is used up", errno.EFBIG: "a file grew too large"}
BLOCK = 1 << 20


def need(name):
    """Imports a package of the `prepare` extra."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Error(f"the Python package '{name.split('.')[0]}' cannot be imported ({error})",
                    "pip install 'longstride[prepare]'") from None


def child_environment(**values):
    """For a Python process that imports this package from where it is."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return dict(os.environ, PYTHONPATH=os.pathsep.join(paths), **values)


def hasher():
    """A running XXH3-64: update(bytes), hexdigest()."""
    return need("xxhash").xxh3_64()


def digest(data):
    return need("xxhash").xxh3_64_hexdigest(data)


def digest_file(path):
    """The checksum of a file's bytes, read in blocks."""
    state = hasher()
    with reading(path), open(path, "rb") as file:
        while block := file.read(BLOCK):
            state.update(block)
    return state.hexdigest()


@contextlib.contextmanager
def reading(path):
    """Turns what can go wrong with an input file into an Error that names it."""
    try:
        yield
    except OSError as error:
        raise Error(f"{path} cannot be read: {error.strerror or error}", "check the path and its permissions") from None


@contextlib.contextmanager
def writing(path):
    """Turns a full disk, and whatever else writing can meet, into an Error that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise Error(f"{FULL[error.errno]} for {path}",
                        "make room and run the same command again: it goes on where it stopped") from None
        raise Error(f"{path} cannot be written: {error.strerror or error}",
                    "check --out and its permissions, then run the same command again") from None


def sync_directory(path):
    """Makes renames in a directory last."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path, data, sync=True, folder=None):
    """Writes a file that appears whole or not at all. Until then it is in `folder`, else beside its place."""
    temporary = os.path.join(folder or os.path.dirname(path), f"{os.path.basename(path)}.{os.getpid()}.tmp")
    with writing(path):
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if sync:
            sync_directory(os.path.dirname(path) or ".")


def write_json(path, value, sync=True, folder=None):
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, text.encode("utf-8", "backslashreplace"), sync, folder)  # names of files may be any bytes


def read_json(path):
    """The value of a JSON file of our own, or None if it is absent or broken."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return None
