"""Passkey documents: a number hidden in neutral text at a given depth, and asked for at the end.

Every document has exactly the length asked for, in tokens. Its targets are the tokens of the number at its end.
"""
import array
import json
import random

from ..errors import Error
from .chat import token_ranges
from .files import need
from .readers import Piece

INTRODUCTION = "There is an important fact hidden in the following text. Find it and remember it.\n"
NEEDLE = "\nThe pass key is {key}. Remember it: {key} is the pass key.\n"
QUESTION = "\nWhat is the pass key? The pass key is "
FILLER = (
    "The path follows the river for a while and then turns towards the hills. In the morning the air is clear, and "
    "one can see the roofs of the next village. A wooden bridge leads to the other bank, where the meadows begin. "
    "Most days are quiet here. The miller opens his door early, and the baker carries bread to the houses near the "
    "church. When it rains, the water rises a little, and the children look for stones under the bridge. In summer "
    "the grass is cut twice and dried in the sun. The road to the town was mended last year, so the cart needs less "
    "time than before. Some people keep bees, others grow beans and cabbage behind their houses. On market days the "
    "square is full of baskets, and everybody talks about the weather. Towards evening the light becomes softer, the "
    "swallows fly low, and the smoke of the chimneys stands above the trees. Then the lamps are lit one by one, and "
    "the sounds of the day grow faint. In winter the snow lies on the fields for many weeks. The paths are cleared "
    "with shovels, and the windows are covered with frost. Old stories are told beside the stove, and nobody is in a "
    "hurry. When the ice melts, the first boats go down the river again, and the fences are painted white. ")
DIGITS = 6
PIECE = 1 << 20  # tokens of a piece of work, about


def pieces(lengths, depths, count, seed):
    """The orders of all documents, cut into pieces: by length, then by depth, then by number."""
    orders, held, done = [], 0, 0
    for length in lengths:
        for depth in depths:
            for number in range(count):
                orders.append([length, depth, number, seed])
                held += length
                done += length
                if held >= PIECE:
                    yield Piece("needle", [], [json.dumps(orders).encode()], 1, done)
                    orders, held = [], 0
    if orders:
        yield Piece("needle", [], [json.dumps(orders).encode()], 1, done)


class Needles:
    """Makes the documents; `settings` has the text to fill them with, and the longest length."""

    def __init__(self, encoder, settings):
        self.encoder, self.numpy = encoder, need("numpy")
        self.special = settings["special_tokens"]
        self.filler = array.array("I", encoder.encode_batch_fast([settings["filler"]], add_special_tokens=False)[0].ids)
        if not self.filler:
            raise Error("the filler text has no tokens", "give other files with --filler")

    def ids(self, text, special=False):
        return array.array("I", self.encoder.encode(text, add_special_tokens=special).ids)

    def make(self, order):
        """(tokens, mask) of an order: [length, depth, number, seed]."""
        length, depth, number, seed = order
        chance = random.Random(f"{seed} {length} {depth} {number}")
        key = "".join(chance.choice("0123456789") for _ in range(DIGITS))
        tail = self.encoder.encode(QUESTION + key, add_special_tokens=False)
        (first, last), = token_ranges(tail, len(tail.ids), [(len(QUESTION), len(QUESTION) + DIGITS)], False)
        head = self.ids(INTRODUCTION, self.special)
        needle = self.ids(NEEDLE.format(key=key))
        room = length - len(head) - len(needle) - last
        if room < 0:
            raise Error(f"a needle document of {length} tokens is too short: it needs {length - room}",
                        "choose greater --lengths")
        before = round(depth * room)
        filler = self.fill(room, chance.randrange(len(self.filler)))
        tokens = head + filler[:before] + needle + filler[before:] + array.array("I", tail.ids[:last])
        mask = self.numpy.zeros(length, "u1")
        mask[length - (last - first):] = 1
        return tokens, mask

    def fill(self, count, start):
        """`count` tokens of the filler from `start` on, round and round."""
        turns = (start + count) // len(self.filler) + 1
        return (self.filler * turns)[start:start + count]


def read_filler(paths, longest):
    """The text of the given files, no more than the longest document can need."""
    if not paths:
        return FILLER
    texts, held = [], 0
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                texts.append(file.read(max(0, 8 * longest - held)))
        except UnicodeDecodeError as error:
            raise Error(f"{path}: not UTF-8 at byte {error.start}", "convert it to UTF-8") from None
        except OSError as error:
            raise Error(f"{path} cannot be read: {error.strerror}", "check --filler") from None
        held += len(texts[-1])
    return "".join(texts)
