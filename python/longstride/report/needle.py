"""The needle map: how often a model finds what was hidden in a document, by the document's length and the depth.

`longstride eval --json` says of every document whether all of its targets had the largest logit. Its length and how
deep the needle lies are known from the manifest, for documents that `longstride prepare needle` made; for others,
needle.json says it (a list of {"length": n, "depth": d}, in the order of the documents; depths are shares from 0 to 1,
or percent if one is above 1).
"""
import json
import math
import os
from dataclasses import dataclass

from longstride.errors import Error
from longstride.report.run import read_object
from longstride.report.sizes import is_number, tokens_text

MOST_LENGTHS, MOST_DEPTHS = 24, 21


@dataclass
class Cell:
    documents: int = 0
    found: int = 0
    targets: int = 0
    correct: int = 0
    loss: float = 0.0  # summed over the targets


@dataclass
class NeedleMap:
    """Cells by (depth, length); both axes ascend, and are labelled."""

    name: str
    lengths: list
    depths: list
    cells: dict
    documents: int
    found: int


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise Error(f"cannot read {path}: {error.strerror}", "check the path and its permissions") from error
    except (ValueError, RecursionError) as error:
        raise Error(f"{path} is not JSON: {error}", "give the output of `longstride eval --json`") from error


def read_eval(path):
    """The output of `longstride eval --json`."""
    evaluation = read_json(path)
    if not isinstance(evaluation, dict) or not isinstance(evaluation.get("documents"), list):
        raise Error(f"{path} has no list of documents", "give the output of `longstride eval --json`")
    for count, document in enumerate(evaluation["documents"], 1):
        counts = document if isinstance(document, dict) else {}
        counts = [counts.get(key) for key in ("tokens", "targets", "correct")]
        if not all(isinstance(value, int) and 0 <= value < 2**62 for value in counts):
            raise Error(f"{path}: document {count} lacks tokens, targets or correct",
                        "give the output of `longstride eval --json`")
    return evaluation


def read_needles(path):
    """The needles of a needle.json, of a manifest, or of a directory that holds one of them."""
    if os.path.isdir(path):
        inside = needles_in(path)
        if inside is None:
            raise Error(f"{path} holds no needles", "give a directory of `longstride prepare needle`, or a needle.json")
        path = inside
    needles = read_json(path)
    hint = 'it must be a list of {"length": tokens, "depth": share}, one for every document'
    if isinstance(needles, dict) and needles.get("format") == "longstride data":
        needles, hint = _made(path, needles), "prepare the data again"
    if not isinstance(needles, list) or not needles:
        raise Error(f"{path} is not a list of needles", hint)
    for count, needle in enumerate(needles, 1):
        if not isinstance(needle, dict) or not is_number(needle.get("length")) or not is_number(needle.get("depth")) \
                or not 1 <= needle["length"] < 2**62 or needle["depth"] < 0:
            raise Error(f"{path}: needle {count} has no valid length and depth", hint)
    return needles


def _made(path, manifest):
    """What `prepare needle` has made: by length, then by depth, so many of each."""
    options = manifest.get("options")
    if not isinstance(options, dict) or options.get("kind") != "needle":
        raise Error(f"{path} is of other data than needles", "give a directory of `longstride prepare needle`")
    try:
        documents = manifest["splits"]["train"]["documents"]
        cells = [(length, depth) for length in options["lengths"] for depth in options["depths"]]
        if not cells or len(cells) * options["count"] != documents:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise Error(f"{path}: its options are not those of its documents", "prepare the data again") from None
    return [{"length": length, "depth": depth} for length, depth in cells for _ in range(documents // len(cells))]


def needle_map(name, evaluation, needles, where):
    """The map of an evaluation; Error if the needles are not those of its documents. where: names both files."""
    documents = evaluation["documents"]
    hint = "give the needles of the data that was evaluated by --needle, and evaluate without --context"
    if len(documents) > len(needles):
        raise Error(f"{where}: {len(documents)} documents were evaluated, and there are {len(needles)} needles", hint)
    for count, (document, needle) in enumerate(zip(documents, needles), 1):
        ratio = (document["tokens"] + 64) / (needle["length"] + 64)
        if not 2 / 3 < ratio < 3 / 2:
            raise Error(f"{where}: document {count} has {document['tokens']} tokens, its needle says "
                        f"{needle['length']}", hint)
    used = needles[:len(documents)]
    percent = max((needle["depth"] for needle in used), default=0) > 1
    depths = [needle["depth"] * (1 if percent else 100) for needle in used]
    lengths_of, lengths = _length_bins([needle["length"] for needle in used])
    depths_of, depth_labels = _depth_bins(depths)
    cells = {}
    for document, length, depth in zip(documents, lengths_of, depths_of):
        _add(cells.setdefault((depth, length), Cell()), document)
    return NeedleMap(name, lengths, depth_labels, cells, sum(cell.documents for cell in cells.values()),
                     sum(cell.found for cell in cells.values()))


def _add(cell, document):
    all_correct = document.get("all_correct", document["correct"] == document["targets"])
    cell.documents += 1
    cell.found += bool(all_correct)
    cell.targets += document["targets"]
    cell.correct += document["correct"]
    if is_number(document.get("loss")):
        cell.loss += document["loss"] * document["targets"]


def _length_bins(lengths):
    """(the column of every length, labels): each length by itself if there are few, else powers of two."""
    distinct = sorted(set(lengths))
    if len(distinct) <= MOST_LENGTHS:
        column = {length: k for k, length in enumerate(distinct)}
        return [column[length] for length in lengths], [tokens_text(length) for length in distinct]
    least = math.floor(math.log2(distinct[0]))
    most = math.floor(math.log2(distinct[-1]))
    labels = [f"{tokens_text(2**k)}+" for k in range(least, most + 1)]
    return [math.floor(math.log2(length)) - least for length in lengths], labels


def _depth_bins(depths):
    """(the row of every depth in percent, labels): each depth by itself if there are few, else tenths."""
    distinct = sorted(set(round(depth, 1) for depth in depths))
    if len(distinct) <= MOST_DEPTHS:
        row = {depth: k for k, depth in enumerate(distinct)}
        return [row[round(depth, 1)] for depth in depths], [f"{depth:g}%" for depth in distinct]
    return [min(9, int(depth // 10)) for depth in depths], [f"{10 * k}–{10 * k + 10}%" for k in range(10)]


def find_needles(eval_path, data_paths):
    """Needles beside an evaluation, or beside (or in) the data of a run: a path for read_needles; None without any."""
    folders = [os.path.dirname(os.path.abspath(eval_path))]
    for path in data_paths:
        folders += [path, os.path.dirname(path)]
    return next((path for path in map(needles_in, folders) if path), None)


def needles_in(folder):
    """The needle.json of a directory, or its manifest if that is of needles."""
    path, manifest = os.path.join(folder, "needle.json"), os.path.join(folder, "manifest.json")
    if os.path.isfile(path):
        return path
    options = read_object(manifest).get("options")
    return manifest if isinstance(options, dict) and options.get("kind") == "needle" else None
