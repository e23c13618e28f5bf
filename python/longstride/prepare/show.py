"""Prints samples with their targets: in colour on a terminal, in brackets elsewhere."""
import itertools

LONGEST = 2000  # characters of a run of text that are printed at each end


def show(preparer, pieces, count, stream):
    """Prints the first documents of the pieces; returns how many there were."""
    shown = 0
    documents = itertools.chain.from_iterable(map(preparer.documents, pieces))
    for shown, document in enumerate(itertools.islice(documents, count), 1):
        targets = len(document.tokens) - 1 if document.targets is None else int((document.targets != 0).sum())
        stream.write(f"--- {shown}: {document.split}, {len(document.tokens)} tokens, {targets} targets"
                     f"{weight(document)}\n{marked(preparer.encoder, document, stream.isatty())}\n")
    return shown


def weight(document):
    if document.targets is None or document.targets.dtype.kind != "f":
        return ""
    return f", weight {float(document.targets[document.targets != 0][:1].sum()):g}"


def marked(encoder, document, colour):
    """The text of a document, runs of targets marked. A run is decoded at once: a character may be several tokens."""
    flags = [i > 0 for i in range(len(document.tokens))] if document.targets is None else document.targets != 0
    parts, start = [], 0
    for flag, group in itertools.groupby(flags):
        end = start + len(list(group))
        text = shorten(encoder.decode(list(document.tokens[start:end]), skip_special_tokens=False))
        if flag:
            text = f"\x1b[32m{text}\x1b[0m" if colour else f"[{text}]"
        parts.append(text)
        start = end
    return "".join(parts)


def shorten(text):
    left_out = len(text) - 2 * LONGEST
    return f"{text[:LONGEST]} ... {left_out} characters ... {text[-LONGEST:]}" if left_out > 0 else text
