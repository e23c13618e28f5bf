"""Other kinds of tokenizers, and templates with everything that transformers offers to them."""
import datetime
import importlib
import io
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import prepare_support as support  # noqa: E402

RICH = """{%- macro shout(text) %}{{ text | upper }}!{% endmacro %}
{%- set ns = namespace(count=0) %}{%- set names = dict(user='U', assistant='A') %}
{{ bos_token }}{{ strftime_now('%Y-%m-%d') }} {{ tools | tojson(indent=2) }} {{ level | default('none') }}
{%- for message in messages %}
    {%- if message.role == 'system' %}{%- continue %}{%- endif %}
    {%- set ns.count = ns.count + 1 %}
    {% if message.role == 'assistant' %}
{{ names[message.role] }}: {% generation %}{{ message.thinking or '' }}|{{ message['content'] | trim }}<|im_end|>
{% endgeneration %}
    {% else %}
{{ names[message.role] }}: {{ shout(message.content) }} {{ message.content[:3] }} {{ loop.index }}/{{ ns.count }}
    {% endif %}
    {%- if ns.count > 6 %}{%- break %}{%- endif %}
{%- endfor %}"""


def save(tokenizer, directory, template):
    os.makedirs(directory)
    tokenizer.save(os.path.join(directory, "tokenizer.json"))
    support.write(os.path.join(directory, "tokenizer_config.json"), json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "bos_token": "<|im_start|>",
         "unk_token": "<unk>"}))
    support.write(os.path.join(directory, "chat_template.jinja"), template)  # where transformers writes it today


def kinds():
    """Tokenizers that treat spaces, offsets and unknown characters in different ways."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    corpus = [*support.SCRIPTS.values(), *(support.words(i, 60) for i in range(100))]
    special = ["<unk>", *support.SPECIAL]
    trimmed = Tokenizer(models.BPE())
    trimmed.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trimmed.post_processor = processors.ByteLevel(trim_offsets=True)
    trimmed.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False,
                                                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    pieces = Tokenizer(models.Unigram())
    pieces.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" ", "▁")])
    pieces.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    pieces.train_from_iterator(corpus, trainers.UnigramTrainer(vocab_size=500, special_tokens=special,
                                                               unk_token="<unk>",
                                                               show_progress=False))
    words = Tokenizer(models.WordPiece(unk_token="<unk>"))
    words.normalizer = normalizers.BertNormalizer(lowercase=False)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=500, special_tokens=special,
                                                                show_progress=False))
    words.post_processor = processors.TemplateProcessing(single="<|im_start|> $A <|endoftext|>", special_tokens=[
        ("<|im_start|>", words.token_to_id("<|im_start|>")), ("<|endoftext|>", words.token_to_id("<|endoftext|>"))])
    words.enable_truncation(16)  # of a file saved in the middle of something else
    words.enable_padding(length=64)
    return {"trimmed byte-level": trimmed, "unigram": pieces, "wordpiece": words}


class Kinds(support.Case):
    def test_text_and_tagged_chats_equal_transformers(self):
        texts = [*support.SCRIPTS.values(), " leading", "trailing ", support.words(1, 200)]
        rows = [[{"role": "user", "content": text}, {"role": "assistant", "content": support.words(text, 5)},
                 {"role": "user", "content": "?"}, {"role": "assistant", "content": text.strip()}] for text in texts]
        for name, tokenizer in kinds().items():
            with self.subTest(name):
                directory = self.path(name)
                save(tokenizer, directory, support.TAGGED)
                loaded = self.transformers(directory)
                end = loaded.convert_tokens_to_ids("<|endoftext|>")
                support.write_lines(self.path("a.jsonl"), [{"text": text, "messages": row}
                                                           for text, row in zip(texts, rows, strict=True)])
                self.prepare(self.path("a.jsonl"), tokenizer=directory, out=self.path("text-" + name))
                for text, (tokens, _) in zip(texts, support.documents(self.path("text-" + name)), strict=True):
                    wanted = loaded(text)["input_ids"]
                    self.assertEqual(tokens, wanted if wanted[-1] == end else [*wanted, end])
                self.prepare(self.path("a.jsonl"), "--messages-column", "messages", tokenizer=directory,
                             out=self.path("chat-" + name))
                for row, found in zip(rows, support.documents(self.path("chat-" + name)), strict=True):
                    wanted = loaded.apply_chat_template(row, return_dict=True, return_assistant_tokens_mask=True)
                    self.assertEqual(found, (wanted["input_ids"], wanted["assistant_masks"]))

    def test_rendering_equals_transformers(self):
        from longstride.prepare.template import Template, with_reasoning

        loaded = self.transformers()
        for i in range(8):
            messages = support.chat(i, turns=1 + i % 5, thinking=i % 2 == 0)
            tools = [{"type": "function", "function": {"name": "é<&>"}}] if i % 3 else None
            variables = {**loaded.special_tokens_map, **({"level": 3} if i % 2 else {})}
            template = Template(RICH, variables, datetime.date.today().isoformat())
            text, spans = template.render_tagged(with_reasoning(messages), tools)
            wanted = loaded.apply_chat_template(messages, tools=tools, chat_template=RICH, tokenize=False,
                                                **({"level": 3} if i % 2 else {}))
            self.assertEqual(text, wanted)
            self.assertEqual(template.render(with_reasoning(messages), tools), wanted)
            utilities = importlib.import_module("transformers.utils.chat_template_utils")
            _, (indices,) = utilities.render_jinja_template([messages], tools=tools, chat_template=RICH,
                                                            return_assistant_tokens_mask=True, **variables)
            self.assertEqual(spans, indices)

    def test_templates_cannot_reach_python(self):
        from longstride.errors import Error
        from longstride.prepare.template import Template

        for text in ("{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ namespace(__class__=1) }}",
                     "{% set ns = namespace() %}{% set ns.__x = 1 %}"):
            with self.assertRaisesRegex(Error, "refuses this chat"):
                Template(text, {}, "2026-01-01").render([{"role": "user"}], None)

    def test_a_template_of_its_own_for_tools(self):
        directory = support.with_template(self.path("two"), self.tokenizer, [
            {"name": "default", "template": support.CHATML},
            {"name": "tool_use", "template": "TOOLS " + support.CHATML}])
        rows = [{"messages": support.chat(1), "tools": tools} for tools in (None, [{"name": "f"}])]
        self.prepare(support.write_lines(self.path("a.jsonl"), rows), "--messages-column", "messages",
                     tokenizer=directory)
        loaded = self.transformers(directory)
        for row, (tokens, _) in zip(rows, support.documents(self.out), strict=True):
            self.assertEqual(tokens, loaded.apply_chat_template(row["messages"], tools=row["tools"])["input_ids"])

    def test_transformers_and_torch_are_not_imported(self):
        """Even where they are installed: a fake torch, which shows that it was imported, is found first."""
        support.write(self.path("fake", "torch", "__init__.py"), "raise SystemExit('torch was imported')")
        code = ("import sys; from longstride.prepare import main; main(sys.argv[1:])\n"
                "assert 'transformers' not in sys.modules and 'torch' not in sys.modules")
        source = support.write(self.path("a.txt"), "A text.")
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([os.path.join(support.ROOT, "python"),
                                                                   self.path("fake")]))
        result = subprocess.run([sys.executable, "-B", "-c", code, source, "--tokenizer", self.tokenizer, "--out",
                                 self.out],
                                env=environment, capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stdout),
                         (0, "train: 1 documents, 7 tokens (7), 6 targets, 1 shards\n"),
                         result.stderr)
        self.assertNotIn("PyTorch", result.stderr)
        broken = support.write(self.path("broken", "tokenizer.json"), "{}")
        result = subprocess.run([sys.executable, "-B", "-c", code, source, "--tokenizer", os.path.dirname(broken),
                                 "--out", self.out + "2"], env=environment, capture_output=True, text=True, check=False)
        self.assertIn("broken cannot be loaded: ", result.stderr)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Display(support.Case):
    def test_progress(self):
        from longstride.prepare.progress import Progress

        for stream in (Terminal(), io.StringIO()):
            progress = Progress(4_000_000, stream, every=0)
            progress.every = 0
            progress.advance(1_000_000, 250_000)
            progress.advance(2_000_000, 1_250_000)
            progress.finish()
            text = stream.getvalue()
            for part in (" 25.0%  1.0 of 4.0 MB  250.0K tokens", " 50.0%  2.0 of 4.0 MB  1.5M tokens", "100.0%",
                         " left"):
                self.assertIn(part, text)
            self.assertEqual(text.count("\n"), 1 if stream.isatty() else 3)
            self.assertEqual("[###############...............]" in text and "\r" in text, stream.isatty())

    def test_targets_in_colour_on_a_terminal(self):
        import array

        import numpy
        from longstride.prepare.documents import Document
        from longstride.prepare.show import marked
        from longstride.prepare.tokenizer import encoder, load

        tool = encoder(load(self.tokenizer).resolved)
        tokens = array.array("I", tool.encode("水水水 river<|im_end|>").ids)
        mask = numpy.zeros(len(tokens), "u1")
        mask[-2:] = 1
        self.assertEqual(marked(tool, Document("train", tokens, mask), True), "水水水\x1b[32m river<|im_end|>\x1b[0m")
        self.assertEqual(marked(tool, Document("train", tokens, mask), False), "水水水[ river<|im_end|>]")


if __name__ == "__main__":
    unittest.main()
