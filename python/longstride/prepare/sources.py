"""Which files are to be read, in which order, and what they hold."""
import dataclasses
import json
import os

from ..errors import Error
from .files import reading

FORMATS = ("text", "jsonl", "parquet", "arrow")
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".arrow": "arrow"}
COMPRESSIONS = {".gz": "gz", ".zst": "zst"}


@dataclasses.dataclass(frozen=True)
class Source:
    path: str
    format: str  # one of FORMATS
    compression: str  # "", "gz" or "zst"
    bytes: int


def find(paths, format="auto", split=None, exclude=None):
    """The files of the given paths: a file itself, all files below a directory in the order of their names (without
    hidden and empty ones, and without those below `exclude`), the Arrow files of a dataset saved by `datasets`."""
    found = []
    for path in paths:
        if not os.path.exists(path):
            raise Error(f"{path} does not exist", "check the path of the source")
        if os.path.isdir(path):
            dataset = dataset_files(path, split)
            names = dataset if dataset is not None else files_below(path, exclude)
            if not names:
                raise Error(f"{path} holds no files to read", "hidden and empty files are skipped")
            found += [describe(name, "arrow" if dataset is not None else format) for name in names]
        else:
            found.append(describe(path, format))
    return found


def describe(path, format):
    stem, ending = os.path.splitext(path)
    compression = COMPRESSIONS.get(ending.lower(), "")
    if format == "auto":
        format = ENDINGS.get(os.path.splitext(stem if compression else path)[1].lower(), "text")
    if compression and format in ("parquet", "arrow"):
        raise Error(f"{path} is a compressed {format} file, which cannot be read",
                    f"unpack it first: {'gunzip' if compression == 'gz' else 'unzstd'} {path}")
    with reading(path):
        return Source(path, format, compression, os.stat(path).st_size)


def files_below(directory, exclude):
    exclude = os.path.realpath(exclude) if exclude else None
    names = []
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders
                      if not name.startswith(".") and os.path.realpath(os.path.join(folder, name)) != exclude]
        for name in files:
            path = os.path.join(folder, name)
            if not name.startswith(".") and os.path.isfile(path) and os.path.getsize(path):
                names.append(path)
    return sorted(names, key=lambda name: name.split(os.sep))


def dataset_files(directory, split):
    """The Arrow files of a `datasets` directory in their order, or None if it is not one."""
    splits = os.path.join(directory, "dataset_dict.json")
    if os.path.exists(splits):
        with reading(splits), open(splits, encoding="utf-8") as file:
            names = json.load(file)["splits"]
        if split is None and len(names) != 1:
            raise Error(f"{directory} holds several splits: {', '.join(names)}", "choose one with --split NAME")
        chosen = names[0] if split is None else split
        if chosen not in names:
            raise Error(f"{directory} has no split '{chosen}'", f"its splits are: {', '.join(names)}")
        return dataset_files(os.path.join(directory, chosen), None)
    state = os.path.join(directory, "state.json")
    if not os.path.exists(state) or not os.path.exists(os.path.join(directory, "dataset_info.json")):
        return None
    with reading(state), open(state, encoding="utf-8") as file:
        content = json.load(file)
    if content.get("_indices_data_files"):
        raise Error(f"{directory} holds a dataset with an indices mapping, which is not supported",
                    "save it with a newer version of datasets, or call flatten_indices() before save_to_disk()")
    return [os.path.join(directory, entry["filename"]) for entry in content["_data_files"]]
