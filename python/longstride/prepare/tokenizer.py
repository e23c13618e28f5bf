"""The tokenizer: loaded by transformers, which knows its peculiarities, and used through `tokenizers`.

A process of its own imports transformers, with torch hidden from it: torch is not needed, and takes seconds to import.
The main process and the workers get the resolved tokenizer as text.
"""
import dataclasses
import os
import pickle
import subprocess
import sys

from ..errors import Error, InternalError
from .files import child_environment, digest, need, reading

GENERATION = r"\{\%-?\s*generation\s*-?\%\}"


@dataclasses.dataclass
class Tokenizer:
    path: str
    file: bytes  # tokenizer.json
    resolved: str  # what transformers makes of it, as JSON
    vocabulary: int
    eos: str | None
    tokens: dict  # the special tokens that templates may use
    templates: dict  # name ("default", "tool_use") to text; empty if there is none

    def digest(self, template_text):
        return digest(self.file + template_text.encode())


def load(path):
    """Loads a tokenizer's directory."""
    name = os.path.join(path, "tokenizer.json")
    if not os.path.isfile(name):
        raise Error(f"{path} holds no tokenizer.json",
                    "give the model's directory; save a slow tokenizer as a fast one with transformers first")
    if "transformers" in sys.modules:
        return load_here(path)
    process = subprocess.run([sys.executable, "-m", "longstride.prepare.tokenizer", path], stdout=subprocess.PIPE,
                             env=child_environment(TRANSFORMERS_NO_ADVISORY_WARNINGS="1"), check=False)
    try:
        kind, *content = pickle.loads(process.stdout)
    except (EOFError, pickle.UnpicklingError):
        raise InternalError(f"loading the tokenizer in {path} ended with status {process.returncode}") from None
    if kind == "error":
        raise Error(*content)
    return Tokenizer(*content)


def load_here(path):
    """The same in this process."""
    transformers = need("transformers")
    configured = any(os.path.exists(os.path.join(path, other)) for other in ("tokenizer_config.json", "config.json"))
    loader = transformers.AutoTokenizer if configured else transformers.PreTrainedTokenizerFast
    try:
        loaded = loader.from_pretrained(path, local_files_only=True)
        backend = loaded.backend_tokenizer
    except Exception as error:  # transformers raises errors of many types, and tokenizers the plain Exception
        raise Error(f"the tokenizer in {path} cannot be loaded: {error}",
                    "see that transformers.AutoTokenizer.from_pretrained loads it") from None
    backend.no_truncation()
    backend.no_padding()
    with reading(path), open(os.path.join(path, "tokenizer.json"), "rb") as file:
        content = file.read()
    vocabulary = max(backend.get_vocab_size(with_added_tokens=True),
                     1 + max(backend.get_vocab(with_added_tokens=True).values(), default=0))
    templates = loaded.chat_template or {}
    return Tokenizer(path, content, backend.to_str(), vocabulary, loaded.eos_token and str(loaded.eos_token),
                     plain(loaded.special_tokens_map),
                     templates if isinstance(templates, dict) else {"default": templates})


def plain(tokens):
    """Special tokens as templates see them: strings, not objects."""
    return {name: [str(one) for one in token] if isinstance(token, list | tuple) else str(token)
            for name, token in tokens.items()}


def encoder(resolved):
    """The `tokenizers` object of a resolved tokenizer."""
    return need("tokenizers").Tokenizer.from_str(resolved)


def end_token(tokenizer, choice):
    """The id of the token that ends a document of plain text, or None."""
    if choice == "none":
        return None
    text = tokenizer.eos if choice == "eos" else choice
    if text is None:
        raise Error(f"the tokenizer in {tokenizer.path} names no eos token, so nothing would end a document",
                    "choose a token with --end-token TOKEN, or go without with --end-token none")
    found = encoder(tokenizer.resolved).token_to_id(text)
    if found is None:
        raise Error(f"the tokenizer in {tokenizer.path} has no token {text!r}",
                    "--end-token takes the text of one token, eos or none")
    return found


def main():
    """Answers with a pickle on the standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed meanwhile must not be taken for the answer
    sys.modules["torch"] = None  # imports of it fail from now on
    try:
        answer = ("tokenizer", *dataclasses.astuple(load_here(sys.argv[1])))
    except Error as error:
        answer = ("error", error.message, error.hint)
    pickle.dump(answer, answers)
    answers.close()


if __name__ == "__main__":
    main()
