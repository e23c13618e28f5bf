"""From a piece of input to documents: tokens, and which of them are targets."""
import array
import dataclasses
import json

from ..errors import Error
from .chat import Chats, token_ranges
from .files import need
from .needle import Needles
from .template import Template
from .tokenizer import encoder

BATCH = 1 << 20  # characters that are given to the tokenizer at once: more would only need more memory


@dataclasses.dataclass
class Document:
    split: str
    tokens: array.array  # of type "I"
    targets: object  # None: all; else a numpy array per token, of uint8 or, with weights, float32


@dataclasses.dataclass
class Record:
    """A document of the input: where it stands, its text or its chat, its weight and its split."""
    place: str
    value: object
    tools: object = None
    weight: float = 1.0
    split: str = "train"


class Preparer:
    """Turns pieces into documents by a run's settings (see command.settings)."""

    def __init__(self, settings):
        self.numpy = need("numpy")
        self.settings = settings
        self.encoder = encoder(settings["resolved"])
        self.weights = settings["weight_column"] is not None
        self.limit = int((settings["eval_fraction"] or 0) * 2**64)
        self.once = self.written = self.empty = 0  # tokens of chats if each were written once; as written; no text
        if settings["templates"]:
            self.chats = Chats({name: Template(text, settings["variables"], settings["date"])
                                for name, text in settings["templates"].items()}, settings["roles"])
        if settings["needle"]:
            self.needles = Needles(self.encoder, settings["needle"])

    def documents(self, piece):
        """Yields the documents of a piece in the order of the input."""
        if piece.kind == "needle":
            yield from (Document("train", *self.needles.make(order)) for order in json.loads(piece.blobs[0]))
            return
        make = self.from_chats if self.settings["templates"] else self.from_texts
        batch, size = [], 0
        for record, length in self.records(piece):
            batch.append(record)
            size += length
            if size >= BATCH:
                yield from make(batch)
                batch, size = [], 0
        yield from make(batch)

    def records(self, piece):
        """Yields (record, its length in characters, about)."""
        if piece.kind == "text":
            for name, blob in zip(piece.names, piece.blobs, strict=True):
                text = decode(blob, name)
                record = Record(name, text.removeprefix("\ufeff"))
                self.choose_split(record)
                yield record, len(text)
            return
        word = "line" if piece.kind == "jsonl" else "row"
        for number, line in enumerate(piece.blobs[0].split(b"\n"), piece.first):
            if line and not line.isspace():
                place = f"{piece.names[0]}, {word} {number}"
                text = decode(line, place)
                record = self.read_row(place, text.removeprefix("\ufeff") if number == 1 else text)
                self.choose_split(record)
                yield record, len(text)

    def read_row(self, place, text):
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Error(f"{place}: broken JSON: {error}",
                        "every line must hold one JSON object; if it is no JSONL, see --format") from None
        if not isinstance(row, dict):
            raise Error(f"{place}: not a JSON object", "every line must hold one, such as {\"text\": \"...\"}")
        settings = self.settings
        chat = settings["messages_column"] is not None
        name = settings["messages_column"] if chat else settings["text_column"]
        if row.get(name) is None:
            known = ", ".join(map(str, row)) or "none"
            raise Error(f"{place}: no value for '{name}'",
                        f"its keys are: {known}; choose one with --text-column or --messages-column")
        record = Record(place, row[name])
        if chat:
            record.tools = row.get(settings["tools_column"])
        elif not isinstance(record.value, str):
            raise Error(f"{place}: '{name}' is not a string", "for chats, use --messages-column")
        if self.weights:
            record.weight = row.get(settings["weight_column"])
            if isinstance(record.weight, bool) or not isinstance(record.weight, int | float) \
                    or not abs(record.weight) < 3e38:  # not a number, or infinite as float32
                raise Error(f"{place}: '{settings['weight_column']}' is not a finite number",
                            "every row needs a weight")
        return record

    def choose_split(self, record):
        """By a checksum of what the document says, not of its tokens or its place: every tokenizer gives the same
        split, and equal documents stay together."""
        if self.limit:
            value = record.value if isinstance(record.value, str) and not self.settings["templates"] else json.dumps(
                [record.value, record.tools], sort_keys=True, ensure_ascii=False)
            data = value.encode("utf-8", "surrogatepass")
            record.split = "eval" if need("xxhash").xxh3_64_intdigest(data) < self.limit else "train"

    def from_texts(self, records):
        end = self.settings["end"]
        full = [record for record in records if record.value]
        self.empty += len(records) - len(full)
        encodings = self.encode(full, [record.value for record in full], self.encoder.encode_batch_fast,
                                self.settings["special_tokens"])
        for record, encoding in zip(full, encodings, strict=True):
            tokens = array.array("I", encoding.ids)
            if end is not None and (not tokens or tokens[-1] != end):
                tokens.append(end)
            if not tokens:
                self.empty += 1
                continue
            targets = None
            if self.weights:
                targets = self.numpy.full(len(tokens), record.weight, "<f4")
                targets[0] = 0
            yield Document(record.split, tokens, targets)

    def from_chats(self, records):
        wholes, owners, samples = [], [], []
        for record in records:
            try:
                whole, made = self.chats.samples(record.value, record.tools)
            except Error as error:
                raise Error(f"{record.place}: {error.message}", error.hint) from None
            if len(made) > 1 or made[0][0] != whole:
                wholes.append((record, whole))
            samples += made
            owners += [record] * len(made)
        encodings = self.encode(owners, [text for text, _ in samples], self.encoder.encode_batch, False)
        counts = []
        for record, encoding, (text, spans) in zip(owners, encodings, samples, strict=True):
            document = self.from_sample(record, encoding, text, spans)
            counts.append(len(document.tokens))
            yield document
        self.count(owners, wholes, counts)

    def from_sample(self, record, encoding, text, spans):
        tokens = array.array("I", encoding.ids)
        targets = self.numpy.zeros(len(tokens), "<f4" if self.weights else "u1")
        tagged = self.chats.choose(record.tools).tags
        for first, last in token_ranges(encoding, len(tokens), spans, tagged):
            targets[first:last] = record.weight
        targets[:1] = 0  # nothing predicts the first token
        if not targets.any() and record.weight:
            raise Error(f"{record.place}: no token of an answer is left to learn in {text[:60]!r}",
                        "see with --show what the template makes of it")
        return Document(record.split, tokens, targets)

    def count(self, owners, wholes, counts):
        """How many tokens the samples have, and how many the chats would have if each were written once."""
        self.written += sum(counts)
        again = self.encode([record for record, _ in wholes], [whole for _, whole in wholes],
                            self.encoder.encode_batch_fast, False)
        repeated = {id(record) for record, _ in wholes}
        kept = sum(n for record, n in zip(owners, counts, strict=True) if id(record) not in repeated)
        self.once += kept + sum(len(encoding) for encoding in again)

    def encode(self, records, texts, method, special):
        try:
            return method(texts, add_special_tokens=special)
        except Exception as error:  # tokenizers raises the plain Exception, and TypeError for what is not Unicode
            for record, text in zip(records, texts, strict=True):
                try:
                    text.encode()
                except UnicodeEncodeError as wrong:
                    raise Error(f"{record.place}: half a surrogate pair at character {wrong.start}: no Unicode text",
                                "correct the escape sequences \\ud800 to \\udfff") from None
            raise Error(f"{records[0].place} and on: the tokenizer fails: {error}", "try the tokenizer on it") from None


def decode(data, place):
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Error(f"{place}: not UTF-8 at byte {error.start}", "convert it to UTF-8, or leave it out") from None
