"""`longstride prepare`: from the command line to a run."""
import dataclasses
import datetime
import os
import sys

from ..errors import Error
from . import arguments as command_line
from . import needle, readers, sources
from .files import digest_file, read_json, reading
from .progress import Progress, short
from .run import WORK, Run
from .template import Template, uses_date
from .tokenizer import end_token, load


@dataclasses.dataclass
class Task:
    """All that a run needs: the tokenizer, what workers are told, what decides about the bytes, and the input."""
    tokenizer: object
    settings: dict
    identity: dict
    pieces: object  # to iterate over
    origin: object  # a function: the description of the input, once all pieces were read or by reading it
    total: int  # of progress
    unit: tuple


def main(arguments: list[str]) -> int:
    """Runs the command; mistakes of the user are raised as Error."""
    is_needle = arguments[:1] == ["needle"]
    parser = command_line.needle_parser() if is_needle else command_line.documents_parser()
    options = parser.parse_args(arguments[1:] if is_needle else arguments)
    if options.out is None and not options.show:
        raise Error("no directory for the output was given", "add --out DATA, or --show N to only look at samples")
    task = needle_task(options) if is_needle else documents_task(options)
    if options.show:
        return show(task, options.show)
    try:
        return execute(task, options)
    except KeyboardInterrupt:
        print("\ninterrupted; run the same command again to go on", file=sys.stderr)
        return 130


def base_settings(options, tokenizer):
    return {"resolved": tokenizer.resolved, "token_bytes": 2 if tokenizer.vocabulary <= 1 << 16 else 4,
            "targets": "all", "text_column": None, "messages_column": None, "tools_column": None, "weight_column": None,
            "templates": {}, "variables": {}, "date": None, "roles": [], "end": None, "eval_fraction": 0.0,
            "special_tokens": not options.no_special_tokens, "shard_tokens": options.shard_tokens, "needle": None}


def needle_task(options):
    tokenizer = load(options.tokenizer)
    settings = base_settings(options, tokenizer)
    settings |= {"targets": "mask", "needle": {"filler": needle.read_filler(options.filler, max(options.lengths)),
                                               "special_tokens": settings["special_tokens"]}}
    chosen = {"kind": "needle", "lengths": options.lengths, "depths": options.depths, "count": options.count,
              "seed": options.seed, "special_tokens": settings["special_tokens"], "shard_tokens": options.shard_tokens}
    files = sources.find(options.filler, "text")
    total = sum(options.lengths) * len(options.depths) * options.count
    return Task(tokenizer, settings, identity(tokenizer, "", chosen | {"filler": origin_of(files)}),
                needle.pieces(options.lengths, options.depths, options.count, options.seed), lambda: origin_of(files),
                total, (1e6, "M tokens"))


def documents_task(options):
    files = sources.find(options.sources, options.format, options.split, options.out)
    chat, weighted = options.messages_column is not None, options.weight_column is not None
    for file in files:
        if file.format == "text" and (chat or weighted):
            raise Error(f"{file.path} is read as plain text, which has no columns",
                        "name its format with --format jsonl, or go without --messages-column and --weight-column")
    if not chat and (options.template or options.template_arg):
        raise Error("a template is for chats, but no column of messages was named", "add --messages-column NAME")
    tokenizer = load(options.tokenizer)
    settings = base_settings(options, tokenizer)
    chosen = {"kind": "chat" if chat else "text", "format": options.format, "split": options.split}
    columns = {options.messages_column if chat else options.text_column: True}
    text = ""
    if chat:
        settings |= {"messages_column": options.messages_column, "tools_column": options.tools_column,
                     "templates": templates(options, tokenizer), "roles": sorted(options.role), "targets": "mask",
                     "variables": {**tokenizer.tokens, **dict(options.template_arg)}}
        text = "".join(settings["templates"].values())
        settings["date"] = choose_date(options, text)
        for name, template in settings["templates"].items():  # for an early message
            Template(template, {}, settings["date"],
                     options.template or f"the chat template '{name}' of {tokenizer.path}")
        columns[options.tools_column] = False
        chosen |= {key: settings[key] for key in ("messages_column", "tools_column", "roles")}
        chosen |= {"template_arguments": dict(options.template_arg),
                   "date": settings["date"] if uses_date(text) else None}
    else:
        settings |= {"text_column": options.text_column, "end": end_token(tokenizer, options.end_token)}
        chosen |= {"text_column": options.text_column, "end_token": settings["end"],
                   "special_tokens": settings["special_tokens"]}
    if weighted:
        settings |= {"weight_column": options.weight_column, "targets": "weights"}
        columns[options.weight_column] = True
    settings["eval_fraction"] = options.eval_fraction
    chosen |= {"weight_column": options.weight_column, "eval_fraction": options.eval_fraction,
               "shard_tokens": options.shard_tokens}
    reader = readers.Reader(files, columns, options.piece_bytes)
    return Task(tokenizer, settings, identity(tokenizer, text, chosen), reader,
                lambda: reader.origin if len(reader.origin) == len(files) else origin_of(files),
                readers.total_bytes(files), (1e6, "MB"))


def identity(tokenizer, template, chosen):
    return {"tokenizer": {"path": tokenizer.path, "xxh3": tokenizer.digest(template)}, "options": chosen}


def templates(options, tokenizer):
    if options.template:
        with reading(options.template), open(options.template, encoding="utf-8") as file:
            return {"default": file.read()}
    if "default" not in tokenizer.templates:
        others = ", ".join(sorted(tokenizer.templates))
        raise Error(f"the tokenizer in {tokenizer.path} has no " + (f"default chat template, only: {others}" if others
                                                                     else "chat template"),
                    "give one with --template FILE")
    return {name: text for name, text in sorted(tokenizer.templates.items()) if name in ("default", "tool_use")}


def choose_date(options, text):
    """A run that goes on uses the date of its beginning."""
    earlier = None
    if options.date is None and uses_date(text) and options.out:
        for path in (os.path.join(options.out, "manifest.json"), os.path.join(options.out, WORK, "run.json")):
            earlier = earlier or ((read_json(path) or {}).get("options") or {}).get("date")
    return options.date or earlier or datetime.date.today().isoformat()


def origin_of(files):
    return [{"path": file.path, "bytes": file.bytes, "xxh3": digest_file(file.path)} for file in files]


def show(task, number):
    from .documents import Preparer
    from .show import show as print_samples

    if not print_samples(Preparer(task.settings), task.pieces, number, sys.stdout):
        raise Error("the input holds no documents", "see that the files are not empty")
    return 0


def execute(task, options):
    with Run(options.out, task.identity, task.settings) as run:
        manifest = run.finished()
        if manifest is not None:
            if manifest["origin"] != task.origin():
                raise Error(f"{options.out} was made from other files, or they have changed",
                            "choose another --out, or remove it")
            print(f"{options.out} is complete already, and as it was written")
            report(manifest)
            return 0
        if run.resume():
            print(f"going on with the unfinished run in {options.out}", file=sys.stderr)
        progress = Progress(task.total, unit=task.unit[0], name=task.unit[1])
        try:
            counts = run.make(task.pieces, options.workers, progress)
        except BaseException:
            progress.clear()
            raise
        progress.finish()
        check_counts(run.joiners, counts, options)
        report(run.finish(counts["parts"], task.origin(), task.tokenizer.vocabulary))
        return 0


def check_counts(joiners, counts, options):
    """What is known only when all input was read."""
    if counts["empty"]:
        print(f"left out: {counts['empty']} documents without text")
    if counts["written"] != counts["once"]:
        factor = counts["written"] / max(1, counts["once"])
        print(f"the template rewrites history: the samples have {factor:.2f} times the tokens of the chats")
        if factor > options.max_factor:
            raise Error("the template rewrites history, so answers need samples of their own, with "
                        f"{factor:.2f} times the tokens of the chats (allowed: {options.max_factor:g})",
                        f"accept it with --max-factor {factor + 0.005:.2f} (what is done is used), or give a template "
                        "with {% generation %} tags: --template FILE")
    documents = {split: joiner.documents() for split, joiner in joiners.items()}
    if not any(documents.values()):
        raise Error("the input holds no documents", "see that the files are not empty")
    for split, number in documents.items():
        if not number:
            raise Error(f"no document is in the split '{split}'", "choose another --eval-fraction and another --out")


def report(manifest):
    for split, entry in manifest["splits"].items():
        print(f"{split}: {entry['documents']} documents, {entry['tokens']} tokens ({short(entry['tokens'])}), "
              f"{entry['targets']} targets, {len(entry['shards'])} shards")
