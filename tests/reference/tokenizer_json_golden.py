"""Tokenizers as tokenizer.json alone, and the ids of odd documents by the tokenizers package.

Writes:

  tests/golden/tokenizer_json/tokenizer.json   byte-level BPE of 900 tokens with cl100k's pattern
  tests/golden/tokenizer_json/NAME.json        {"patch", "eos", "cases": [{"text", "ids",
                                               "ids_special"?}]}

NAME is one of the variants below. Its tokenizer.json is the first file with "patch" applied as a
JSON merge patch (RFC 7396). "ids" treats special tokens in text as text (encode_special_tokens),
"ids_special" (present where they differ) as tokens; neither applies a post-processor.

The C++ test checks that a tokenizer read from the patched file gives these ids.
"""

import json

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from bpe_golden import CASES, training_texts
from golden_io import write_json
from odd_documents import odd_documents

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
VOCAB = 900
DOCUMENTS = 150


def token(index, content, **flags):
    return {"id": index, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True, **flags}


def byte_level(**settings):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
            "use_regex": True, **settings}


GPT2 = {"pre_tokenizer": {**byte_level(), "pretokenizers": None},
        "model": {"ignore_merges": False}}
VARIANTS = {
    # As transformers saves GPT-2.
    "gpt2": ("<|endoftext|>", {**GPT2, "added_tokens": [token(VOCAB, "<|endoftext|>")]}),
    # As LLaMA 3: many special tokens, words that are tokens taken whole.
    "llama3": ("<|end_of_text|>", {"added_tokens": [
        token(VOCAB, "<|begin_of_text|>"), token(VOCAB + 1, "<|end_of_text|>"),
        token(VOCAB + 2, "<|eot_id|>"), token(VOCAB + 3, "zebra")]}),
    # As GPT-NeoX: NFC, and runs of spaces that are tokens but not special ones.
    "neox": ("<|endoftext|>", {**GPT2, "normalizer": {"type": "NFC"}, "added_tokens": [
        token(VOCAB, "<|endoftext|>"),
        token(VOCAB + 1, "   ", normalized=True, special=False),
        token(VOCAB + 2, "  ", normalized=True, special=False),
        token(VOCAB + 3, "é!", normalized=True, special=False),
        token(VOCAB + 4, "e\u0301", special=False)]}),
    # A space before the first word, and tokens that take white space along.
    "spaces": ("<s>", {
        "pre_tokenizer": {**byte_level(add_prefix_space=True), "pretokenizers": None},
        "model": {"ignore_merges": False}, "added_tokens": [
            token(VOCAB, "<s>"), token(VOCAB + 1, "<mask>", lstrip=True),
            token(VOCAB + 2, "<pad>", rstrip=True, special=False),
            token(VOCAB + 3, "<both>", lstrip=True, rstrip=True, special=False),
            token(VOCAB + 4, "  ", special=False)]}),
}


def base_tokenizer():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(CL100K), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[], show_progress=False)
    texts = list(training_texts()) + ["x = 123\n\n\ny = 4567;\n", "\t\treturn 0;\n}\n\n"] * 40
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())


def patched(target, patch):
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), value)
    return result


def variant(base, name):
    """The tokenizer.json of a variant and its end-of-text."""
    eos, patch = VARIANTS[name]
    return patched(base, patch), eos


def contents(document):
    return [entry["content"] for entry in document["added_tokens"]]


def main():
    base = base_tokenizer()
    assert base == base_tokenizer(), "training is not deterministic"
    write_json("tokenizer_json/tokenizer.json", base, ascii_only=True)
    for number, name in enumerate(VARIANTS):
        document, eos = variant(base, name)
        tokenizer = Tokenizer.from_str(json.dumps(document))
        texts = list(CASES) + list(odd_documents(DOCUMENTS, number, contents(document)))
        cases = []
        for text in texts:
            tokenizer.encode_special_tokens = True
            case = {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
            tokenizer.encode_special_tokens = False
            special = tokenizer.encode(text, add_special_tokens=False).ids
            if special != case["ids"]:
                case["ids_special"] = special
            cases.append(case)
        write_json(f"tokenizer_json/{name}.json",
                   {"patch": VARIANTS[name][1], "eos": eos, "cases": cases}, ascii_only=True)
        print(f"{name}: {len(cases)} texts")


if __name__ == "__main__":
    main()
