"""Parts: what a worker has made of one piece. A part is one file per split, and a description with checksums.

NUMBER.train holds the tokens, then the targets, then the documents' lengths (u64). A part counts as done if its
description is there and belongs to the same input, and its files match their checksums.
"""
import os

from .files import digest, digest_file, need, read_json, write_json, write_whole

SPLITS = ("train", "eval")
TARGET_TYPES = {"all": None, "mask": "u1", "weights": "<f4"}


def file_name(folder, index, split):
    return os.path.join(folder, f"{index:08d}.{split}")


def write(folder, index, checksum, documents, token_bytes, kind):
    """Writes the part of the piece `index`, whose input has the given checksum; returns its description."""
    numpy = need("numpy")
    found = {}
    for document in documents:
        found.setdefault(document.split, []).append(document)
    splits = {}
    for split, members in found.items():
        lengths = numpy.array([len(document.tokens) for document in members], "<u8")
        wide = [numpy.frombuffer(document.tokens, numpy.uint32) for document in members]
        tokens = numpy.concatenate([ids.astype(f"<u{token_bytes}") for ids in wide])
        chunks, targets = [tokens.data], len(tokens) - len(members)
        if kind != "all":
            values = numpy.concatenate([document.targets for document in members])
            chunks.append(values.data)
            targets = int(numpy.count_nonzero(values))
        chunks.append(lengths.data)
        data = b"".join(chunks)
        write_whole(file_name(folder, index, split), data, sync=False)
        splits[split] = {"documents": len(members), "tokens": len(tokens), "targets": targets, "bytes": len(data),
                         "xxh3": digest(data)}
    return {"input": checksum, "splits": splits}


def save(folder, index, description):
    write_json(file_name(folder, index, "json"), description, sync=False)


def describe(folder, index):
    return read_json(file_name(folder, index, "json"))


def intact(folder, index, split, entry):
    path = file_name(folder, index, split)
    return os.path.exists(path) and os.path.getsize(path) == entry["bytes"] and digest_file(path) == entry["xxh3"]


def read(folder, index, split, entry, token_bytes, kind):
    """(tokens, targets or None, lengths) of a part's file."""
    numpy = need("numpy")
    data = numpy.memmap(file_name(folder, index, split), numpy.uint8, "r")
    count, type_name = entry["tokens"], TARGET_TYPES[kind]
    middle = count * token_bytes
    end = middle + (count * numpy.dtype(type_name).itemsize if type_name else 0)
    targets = data[middle:end].view(type_name) if type_name else None
    # The lengths may not be aligned to 8 bytes.
    return data[:middle].view(f"<u{token_bytes}"), targets, numpy.frombuffer(data[end:].tobytes(), "<u8")
