"""The command line of `longstride prepare` and `longstride prepare needle`."""
import argparse
import datetime
import json
import os

from ..errors import Error
from .sources import FORMATS

UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size(text):
    """4096, 4K (1024 times 4), 16M, 1G."""
    unit = UNITS.get(text[-1:].lower(), 1)
    try:
        value = int(float(text[:-1] if unit > 1 else text) * unit)
    except (ValueError, OverflowError):
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive size such as 4096, 4K or 16M")
    return value


def fraction(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def items(convert):
    """A list with commas."""
    def read(text):
        return [convert(item.strip()) for item in text.split(",")]

    return read


def pair(text):
    """K=V: the value as JSON if it is JSON, else as a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not like name=value")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def date(text):
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date such as 2026-01-31") from None


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Error(f"{self.prog}: {message}", f"{self.prog} --help lists the options")


def common(parser):
    parser.add_argument("--tokenizer", metavar="DIR", required=True, help="a directory with tokenizer.json")
    parser.add_argument("--out", metavar="DATA", help="the directory to write; an unfinished one is continued")
    parser.add_argument("--show", metavar="N", type=count,
                        help="print the first N samples, targets marked, and write nothing")
    parser.add_argument("--workers", metavar="N", type=count, default=len(os.sched_getaffinity(0)),
                        help="processes (default: one per processor); no effect on the output")
    parser.add_argument("--shard-tokens", metavar="N", type=size, default=1 << 28,
                        help="the most tokens of a shard (default 256M); a longer document is a shard of its own")
    parser.add_argument("--no-special-tokens", action="store_true",
                        help="for plain text: without the tokens that the tokenizer adds, such as a bos token")


def documents_parser():
    parser = Parser(prog="longstride prepare", allow_abbrev=False, description=(
        "Turns texts or chats into shards of tokens. `longstride prepare needle` makes passkey documents."))
    parser.add_argument("sources", metavar="SOURCE", nargs="+", help=(
        "text, .jsonl, .parquet or .arrow files (text and JSONL also as .gz or .zst), directories of them, "
        "or a directory saved by datasets"))
    common(parser)
    parser.add_argument("--format", choices=("auto", *FORMATS), default="auto",
                        help="what the files hold (default: by the end of their names, else text)")
    parser.add_argument("--split", metavar="NAME", help="which split of a datasets directory to read")
    parser.add_argument("--text-column", metavar="NAME", default="text", help="key of the text (default: text)")
    parser.add_argument("--messages-column", metavar="NAME", help="key of the messages: the input holds chats")
    parser.add_argument("--tools-column", metavar="NAME", default="tools",
                        help="key of a chat's tools (default: tools)")
    parser.add_argument("--weight-column", metavar="NAME", help="key of a document's weight: a number of any sign")
    parser.add_argument("--end-token", metavar="TOKEN", default="eos",
                        help="what ends a document of plain text: eos (default), none, or the text of a token")
    parser.add_argument("--template", metavar="FILE", help="a Jinja chat template in place of the tokenizer's own")
    parser.add_argument("--template-arg", metavar="K=V", type=pair, action="append", default=[],
                        help="a variable for the template; a value that is JSON is read as such; may be repeated")
    parser.add_argument("--date", metavar="YYYY-MM-DD", type=date,
                        help="the date for templates that print one (default: the day the run began)")
    parser.add_argument("--role", metavar="NAME", action="append", default=[],
                        help="a role to accept beside the usual ones; may be repeated")
    parser.add_argument("--max-factor", metavar="X", type=float, default=2.0,
                        help="the most tokens that samples of rewritten histories may have, as a multiple (default 2)")
    parser.add_argument("--eval-fraction", metavar="F", type=fraction, default=0.0,
                        help="the share of documents for evaluation, chosen by a checksum of the document")
    parser.add_argument("--piece-bytes", metavar="N", type=size, default=4 << 20,
                        help="input that a worker takes at once (default 4M); no effect on the output")
    return parser


def needle_parser():
    parser = Parser(prog="longstride prepare needle", allow_abbrev=False, description=(
        "Makes documents that hide a number in neutral text and ask for it at the end; only the answer is a target."))
    common(parser)
    parser.add_argument("--lengths", metavar="N,...", type=items(size), required=True,
                        help="tokens of a document: 4K,16K")
    parser.add_argument("--depths", metavar="D,...", type=items(fraction), default=[0.0, 0.25, 0.5, 0.75, 1.0],
                        help="where the number stands: 0 at the beginning, 1 at the end (default 0,0.25,0.5,0.75,1)")
    parser.add_argument("--count", metavar="N", type=count, default=1,
                        help="documents of each length and depth (default 1)")
    parser.add_argument("--filler", metavar="FILE", action="append", default=[],
                        help="text to hide it in, in place of a built-in one; may be repeated")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="for other numbers (default 0)")
    return parser
