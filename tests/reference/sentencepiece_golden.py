"""A tiny SentencePiece model and the ids its own Python package gives.

Writes:

  tests/golden/sentencepiece/model.model   unigram, 200 pieces, identity normalization (the usual
                                           tables would add 240 kB), ids 0 <unk>, 1 <s>, 2 </s>
  tests/golden/sentencepiece/cases.json    [{"text", "ids", "decoded"}], no <s> or </s> added;
                                           "decoded" is what the package makes of the ids

The C++ test checks that our wrapper loads the model and gives the same ids and text.
"""

import io

import sentencepiece

from bpe_golden import training_texts
from golden_io import golden_path, write_bytes, write_json

VOCAB = 200
LINES = [line for text in training_texts() if text.isascii() for line in text.split("\n") if line]

TEXTS = [
    "", " ", "  ", "a", "The ship leaves the harbour at dawn.", "the bridge", " the bridge",
    "the  bridge ", "a long winter makes a hungry summer", "We've measured every step twice.",
    "numbers 0 1 42 65536", "tab\there", "line one\nline two", "sum += values[i] * weights[i];",
    "UPPER CASE WORDS", "unknown letters: é ß 火 😀", "火车", "<s> and </s> as text", "<unk>",
    "\u2581 the mark itself", "antidisestablishmentarianism", "x" * 100, "no\u00a0break",
]


def train():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, model_type="unigram",
        vocab_size=VOCAB, character_coverage=1.0, normalization_rule_name="identity",
        num_threads=1, minloglevel=2)
    return model.getvalue()


def main():
    model = train()
    assert model == train(), "training is not deterministic"
    write_bytes("sentencepiece/model.model", model)
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(golden_path("sentencepiece/model.model")))
    assert processor.get_piece_size() == VOCAB
    cases = []
    for text in TEXTS:
        ids = processor.encode(text)
        cases.append({"text": text, "ids": ids, "decoded": processor.decode(ids)})
    write_json("sentencepiece/cases.json", cases, ascii_only=True)


if __name__ == "__main__":
    main()
