"""The tokenizer: loaded by transformers, which knows its peculiarities, and used through `tokenizers`.

Only the main process imports transformers. Workers get the resolved tokenizer as text.
"""
import dataclasses
import os

from ..errors import Error
from .files import digest, need, reading

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
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that there is no torch is fine
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
    with reading(name), open(name, "rb") as file:
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
