"""What the tests of `prepare` share: small tokenizers trained here, templates, chats, and ways to run the command."""
import contextlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
sys.path.insert(0, os.path.join(ROOT, "python"))
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
import transformers  # noqa: E402 - once it is imported, `prepare` starts no process for it

SCRIPTS = {
    "Latin": "Señor Müller naïvely sipped crème brûlée, didn't he?  Two  spaces.\n\tA tab.",
    "Greek": "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "Cyrillic": "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Arabic": "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر",
    "Hebrew": "דג סקרן שט בים מאוכזב ולפתע מצא חברה.",
    "Devanagari": "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश।",
    "Thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน",
    "Han": "天地玄黃,宇宙洪荒。日月盈昃,辰宿列張。",
    "Kana": "いろはにほへと ちりぬるを。カタカナ。",
    "Hangul": "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "Emoji": "family 👨‍👩‍👧‍👦, flag 🇪🇺, é as e\u0301, \u200b zero width",
}
CHATML = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
TAGGED = """{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' }}
{%- generation %}{{ message.content }}<|im_end|>{% endgeneration %}
{{- '\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
# Like Qwen3's: tools in the system message, thinking only after the last question, tool answers as a user's.
THINKING = r"""{%- if tools %}
    {{- '<|im_start|>system\n# Tools\n' }}
    {%- for tool in tools %}{{- tool | tojson }}{{- '\n' }}{%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1, searching=true) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == 'user' %}
        {%- set ns.searching = false %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- set content = message.content or '' %}
        {%- set thought = message.reasoning_content or '' %}
        {{- '<|im_start|>assistant\n' }}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>\n' }}{{- call.function | tojson }}{{- '\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
# Cannot be used: the prompt for an answer is not how the answer is rendered.
UNUSABLE = ("{% for message in messages %}{{ message.content }}<|im_end|>{% endfor %}"
            "{% if add_generation_prompt %}Now answer: {% endif %}")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def train_tokenizer(directory, template=None, bos=False, vocabulary=700):
    """A byte-level BPE of our own, saved as transformers saves it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([*SCRIPTS.values(), *(words(i, 60) for i in range(200))], trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<|im_start|> $A",
                                                                 special_tokens=[("<|im_start|>", 1)])
    os.makedirs(directory, exist_ok=True)
    tokenizer.save(os.path.join(directory, "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "model_max_length": 1000000}
    if template is not None:
        config["chat_template"] = template
    write(os.path.join(directory, "tokenizer_config.json"), json.dumps(config))
    return directory


def with_template(directory, source, template):
    """A copy of a tokenizer with another template."""
    shutil.copytree(source, directory)
    path = os.path.join(directory, "tokenizer_config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config.pop("chat_template", None)
    if template is not None:
        config["chat_template"] = template
    write(path, json.dumps(config))
    return directory


def words(seed, count):
    chance = random.Random(seed)
    known = ["the", "river", "Berg", "water", "12", "éclair", "longer", "town", "—", "x=1;", "水"]
    return " ".join(chance.choice(known) for _ in range(count))


def chat(seed, turns=2, thinking=False):
    chance = random.Random(seed)
    messages = [{"role": "system", "content": "Be brief."}] if seed % 3 == 0 else []
    for turn in range(turns):
        messages.append({"role": "user", "content": words(f"{seed}u{turn}", chance.randrange(3, 20))})
        answer = {"role": "assistant", "content": words(f"{seed}a{turn}", chance.randrange(1, 20))}
        if thinking:
            answer["reasoning_content"] = words(f"{seed}t{turn}", chance.randrange(2, 6))
        messages.append(answer)
    return messages


def write(path, text, mode="w"):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, mode, **({} if "b" in mode else {"encoding": "utf-8"})) as file:
        file.write(text)
    return path


def write_lines(path, rows):
    return write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def prepare(*arguments):
    """Runs the command in this process; returns what it printed."""
    from longstride.prepare import main

    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        status = main([str(argument) for argument in arguments])
    assert status == 0, status
    return output.getvalue()


def contents(directory):
    """All files below a directory, by name."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, directory)] = file.read()
    return found


def documents(directory, split="train"):
    """[(tokens, targets or None), ...] of a prepared directory, read by the format's description alone."""
    import numpy

    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    kind = manifest["targets"]
    result = []
    for shard in manifest["splits"][split]["shards"]:
        path = os.path.join(directory, shard["name"])
        tokens = numpy.fromfile(path + ".tokens", f"<u{manifest['token_bytes']}")
        index = numpy.fromfile(path + ".index", "<u8").tolist()
        targets = None if kind == "all" else numpy.fromfile(f"{path}.{kind}", "u1" if kind == "mask" else "<f4")
        assert index[0] == 0 and index[-1] == len(tokens) and index == sorted(index)
        for first, last in zip(index, index[1:], strict=False):
            result.append((tokens[first:last].tolist(), None if targets is None else targets[first:last].tolist()))
    return result


def manifest_of(directory):
    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as file:
        return json.load(file)


class Case(unittest.TestCase):
    """Has a temporary directory, and a tokenizer in it that all cases of a class share."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        cls.tokenizer = train_tokenizer(os.path.join(cls.shared, "tokenizer"), CHATML)

    def setUp(self):
        self.directory = tempfile.mkdtemp(dir=self.shared)
        self.out = self.path("out")

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def transformers(self, directory=None):
        return transformers.AutoTokenizer.from_pretrained(directory or self.tokenizer)

    def prepare(self, *arguments, tokenizer=None, out=None):
        return prepare(*arguments, "--tokenizer", tokenizer or self.tokenizer, "--out", out or self.out)

    def refused(self, pattern, *arguments, **options):
        from longstride.errors import Error

        with self.assertRaisesRegex(Error, pattern) as caught:
            self.prepare(*arguments, **options)
        self.assertTrue(caught.exception.hint)
        return caught.exception
