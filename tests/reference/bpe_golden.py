"""A small GPT-2 tokenizer: vocabulary, merges, and the ids of many awkward texts.

Writes:

  tests/golden/bpe/vocab.json, merges.txt   byte-level BPE trained on the text below: 256 bytes, the
                                            merges, and <|endoftext|> as the last id
  tests/golden/bpe/cases.json               [{"text", "ids", "ids_special"?}]

Two implementations must agree before an id is written: the `tokenizers` package (behind
transformers' GPT2Tokenizer, whose own Python code no longer exists in the pinned version) and the
plain one in this file, which splits with the `regex` package and GPT-2's pattern, then joins the
pair of lowest rank until none is left. Where they disagree the script stops.

"ids" treats <|endoftext|> as ordinary text. "ids_special", present only where the text holds it,
takes it as the one special id, which is what transformers does by default. No prefix space is
added.

The C++ test checks our GPT-2 tokenizer: encode gives "ids", decode gives the text back.
"""

import itertools
import json
import tempfile
from pathlib import Path

import regex
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Tokenizer

from golden_io import write_bytes, write_json

VOCAB = 1200
SPECIAL = "<|endoftext|>"
SPLIT = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

TRAINING_SENTENCES = [
    "The ship leaves the harbour at dawn, and the crew doesn't look back until the light is gone.",
    "We've measured every step twice; it's slower than we'd hoped, but they're sure it'll improve.",
    "I'm told that the old bridge wasn't built for trains, only for carts and people on foot.",
    "She said: \"Don't wait!\" and closed the door; he didn't answer, he'd already left.",
    "A long winter makes a short spring, and a short spring makes a hungry summer.",
    "The numbers 0, 1, 2, 3, 10, 42, 100, 1234, 1999, 2024 and 65536 appear in this line.",
    "for (int i = 0; i < n; ++i) {\n    sum += values[i] * weights[i];\n}\n",
    "def area(width, height):\n    return width * height\n\n\nprint(area(3, 4))\n",
    "Der Zug fährt über die große Brücke, während die Möwen schreien und das Wetter schöner wird.",
    "L'été dernier, nous avons mangé des crêpes près de la forêt, à côté d'une église très âgée.",
    "El niño soñó con un pingüino que comía piñas en la montaña; ¡qué extraño!, ¿verdad?",
    "Příliš mnoho vody teče řekou, když na jaře taje sníh a žáby zpívají.",
    "Korkea kuusi kasvaa järven rannalla, ja yö on lyhyt kesällä.",
    "Поезд идёт через большой мост, а чайки кричат над рекой и над городом.",
    "Старый мост был построен для людей и лошадей, а не для поездов.",
    "Το τρένο περνά πάνω από τη μεγάλη γέφυρα και οι γλάροι φωνάζουν.",
    "火车正在过大桥，海鸥在河上叫。老桥是为人和马建的，不是为火车建的。",
    "電車が大きな橋を渡ります。かもめが川の上で鳴いています。",
    "기차가 큰 다리를 건너고 갈매기가 강 위에서 운다.",
    "القطار يعبر الجسر الكبير والنوارس تصرخ فوق النهر.",
    "הרכבת חוצה את הגשר הגדול והשחפים צועקים מעל הנהר.",
    "रेलगाड़ी बड़े पुल को पार करती है और पक्षी नदी के ऊपर चिल्लाते हैं।",
    "รถไฟข้ามสะพานใหญ่ นกร้องเหนือแม่น้ำ",
    "Smiles 😀 😀 😁, hearts ❤️ ❤️, a family 👨‍👩‍👧 and a flag 🇫🇮 🇯🇵.",
]


def training_texts():
    """The sentences, and two-word phrases made of their words, so that longer merges pay."""
    yield from TRAINING_SENTENCES
    words = " ".join(TRAINING_SENTENCES).split()
    for step in (1, 3, 7):
        for first, second in zip(words, itertools.islice(itertools.cycle(words), step, None)):
            yield f"{first} {second}\n"


CASES = [
    # Nothing, single characters, white space alone.
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t", "\u00a0", "\u2003", "\u3000", "a",
    "é", "\x00", "\x1c\x1d", "\u200b", "\ufeff", "\u180e",
    # Words, spaces between, before and after.
    "Hello world", " Hello world", "Hello world ", "Hello  world", "Hello   world", "  two before",
    "two after  ", "end of line\n", "end of line \n", "a \n b", "a\n b", "a\n\n\nb", "a \n \n b",
    "line one\r\nline two\r\n\r\nline four", "tab\tseparated\t\tvalues", "a \t b", "a\t b", "a \tb",
    "no\u00a0break space", "two\u00a0\u00a0no\u00a0 break", "em\u2003space \u2003mix",
    "thin\u2009a", "narrow\u202fspace", "ideographic\u3000space", "ogham\u1680space",
    "next\u0085line", "line\u2028separator\u2029paragraph", "vertical\x0btab\x0cfeed",
    "zero\u200bwidth\u200dspaces",
    "\ufeffbyte order mark", "mongolian\u180evowel",
    # Control characters, among them the four separators that some call white space.
    "a\x00b", "bell\x07 escape\x1b[0m delete\x7f", "a\x1cb", "a \x1d b", "x\x1e\x1e y", "x \x1f",
    "c1\x80\x9f end",
    # Contractions, both cases, other apostrophes.
    "It's what we've said: they're here, I'm in, he'd go, she'll see, don't.",
    "IT'S WHAT WE'VE SAID: THEY'RE HERE, I'M IN, HE'D GO, SHE'LL SEE, DON'T.",
    "'s 'S 're 'RE 't 'T 've 'm 'll 'd", "''s", "'sad", "'tis 'twas", "it’s curly", "rock 'n' roll",
    # Numbers of every sort.
    "0 1 12 123 1234 12345 1234567890", "3.14159 -2.5e-10 1,000,000 0x1F 50% $9.99 10°", "a1b2c3",
    "Ⅷ ⅷ Ⅻ XII", "x² y³ 10⁻⁵ H₂O", "½ ¼ ¾ ⅓ 1½", "①②③ ⑩ ❶", "٠١٢٣٤ ۵۶۷ ०१२३", "一二三 〇 〡〢 ㊿",
    "１２３ ＡＢＣ", "𝟘𝟙𝟚 𝟎 𝓐𝓑", "௧௨௩ ๑๒๓ ༡༢ ৴", "12th 1st v2.0.1 2024-01-31T23:59:59Z",
    # Accents: composed, decomposed, stacked.
    "café naïve Ünïcödé", "cafe\u0301 nai\u0308ve", "e\u0301", "\u0301", " \u0301x",
    "a\u0300\u0301\u0302b", "Å Å \u212b", "ﬁ ligature ﬀ", "ß ẞ ŉ ǆ", "İstanbul ıI",
    "Tiếng Việt có dấu", "Tie\u0302\u0301ng Vie\u0323\u0302t",
    # Scripts.
    "Поезд идёт через мост. ЁЛКА", "Ελληνικά: Ἀρχὴ σοφίας", "火车正在过大桥。", "火车 train 火车",
    "電車が大きな橋を渡ります。カタカナ ｶﾀｶﾅ", "한국어 띄어쓰기", "\u1112\u1161\u11ab", "القطار يعبر الجسر",
    "السَّلامُ عَلَيْكُم",
    "שָׁלוֹם עולם", "हिन्दी में क्षत्रिय और ज्ञान", "रेलगाड़ी बड़े पुल", "বাংলা ভাষা", "தமிழ் மொழி",
    "ภาษาไทยไม่มีช่องว่าง", "မြန်မာ", "አማርኛ", "ქართული", "Հայերեն", "ᚠᚢᚦ 𐍈 𐤀", "𠀀𠀁 豈",
    # Emoji and symbols.
    "😀", " 😀😀", "👍🏽 👩🏿‍🚀", "👨‍👩‍👧‍👦 family", "❤️ ❤ ♥", "🇫🇮🇯🇵", "1️⃣ #️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "→ ∑ ∀x∈ℝ ≠ ∞", "ℵ ℓ Ω ª º",
    "\ue000 private \U000f0000", "\ufffd replacement \ufffe \uffff \U0010ffff",
    # Punctuation, code, markup.
    "!!! ... ??? --- ___", "a_b __init__ snake_case CamelCase", "https://example.org/a?b=c&d=%20#e",
    "if (a<b && c>=d) { return \"x\\n\"; }", "\tif x:\n\t\treturn\n", "    four\n        eight\n",
    "«quotes» „low“ “high” — dash – ellipsis…", "{\"key\": [1, 2, null]}", "<p class='a'>text</p>",
    "a'b''c'''d", "...word ,word .5 ,5", "mixedТекст混合नमस्ते", "word1слово2字3",
    # Long ones.
    "antidisestablishmentarianism" * 20, "ab" * 500, " " * 100 + "x", "\n" * 50,
    "é" * 200, "7" * 300,
    # The special token as text.
    SPECIAL, f"one{SPECIAL}two", f"one {SPECIAL} two", f"{SPECIAL}{SPECIAL}\n", f" {SPECIAL}",
    "<|endoftext|", "<|ENDOFTEXT|>", "<| endoftext |>",
]


def train():
    """Merges learned by the tokenizers package, in GPT-2's id order: bytes, merges, special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - 1, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[], show_progress=False)
    tokenizer.train_from_iterator(training_texts(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocab = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
    assert list(vocab.values()) == list(range(VOCAB - 1))
    vocab[SPECIAL] = VOCAB - 1
    return vocab, [tuple(pair) for pair in model["merges"]]


def byte_letters():
    """GPT-2's printable letter of each byte: itself where printable, else the next from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, extra = {}, 0x100
    for byte in range(256):
        if byte in plain:
            letters[byte] = chr(byte)
        else:
            letters[byte] = chr(extra)
            extra += 1
    return letters


class PlainTokenizer:
    def __init__(self, vocab, merges):
        self.vocab = vocab
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.letters = byte_letters()

    def encode(self, text):
        ids = []
        for piece in SPLIT.findall(text):
            parts = [self.letters[byte] for byte in piece.encode("utf-8")]
            ids += [self.vocab[part] for part in self.join(parts)]
        return ids

    def join(self, parts):
        while True:
            ranked = [self.ranks[pair] for pair in zip(parts, parts[1:]) if pair in self.ranks]
            if not ranked:
                return parts
            best, joined = min(ranked), []
            while parts:
                if len(parts) > 1 and self.ranks.get((parts[0], parts[1])) == best:
                    joined, parts = joined + [parts[0] + parts[1]], parts[2:]
                else:
                    joined, parts = joined + [parts[0]], parts[1:]
            parts = joined

    def encode_special(self, text):
        """As encode, but each <|endoftext|> becomes its own id."""
        ids = []
        for index, part in enumerate(text.split(SPECIAL)):
            ids += ([self.vocab[SPECIAL]] if index else []) + self.encode(part)
        return ids


def main():
    vocab, merges = train()
    assert (vocab, merges) == train(), "training is not deterministic"
    vocab_text = json.dumps(vocab, ensure_ascii=False) + "\n"
    merges_text = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges)
    write_bytes("bpe/vocab.json", vocab_text.encode("utf-8"))
    write_bytes("bpe/merges.txt", merges_text.encode("utf-8"))

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "vocab.json").write_text(vocab_text, encoding="utf-8")
        Path(folder, "merges.txt").write_text(merges_text, encoding="utf-8")
        library = GPT2Tokenizer.from_pretrained(folder, local_files_only=True)
        bare = Tokenizer(models.BPE.from_file(f"{folder}/vocab.json", f"{folder}/merges.txt"))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    bare.decoder = decoders.ByteLevel()
    plain = PlainTokenizer(vocab, merges)

    cases = []
    for text in CASES:
        case = {"text": text, "ids": plain.encode(text)}
        special = plain.encode_special(text)
        if special != case["ids"]:
            case["ids_special"] = special
        assert bare.encode(text).ids == case["ids"], (text, bare.encode(text).tokens)
        assert library(text)["input_ids"] == special, (text, library(text)["input_ids"], special)
        assert bare.decode(case["ids"]) == text, text
        cases.append(case)
    assert len({case["text"] for case in cases}) == len(cases), "a text appears twice"
    write_json("bpe/cases.json", cases, ascii_only=True)
    print(f"{len(cases)} texts, {len(merges)} merges")


if __name__ == "__main__":
    main()
