"""Documents that tokenizers disagree on, as a function of a seed: every kind of white space and line
end, contractions in either case, digits, accents composed and not, scripts, unassigned characters,
special tokens whole and broken."""

import random

FRAGMENTS = [
    "the", "The", " of", "it's", "I'LL", "don'T", "we'Ve", "x'\u017ft", "'\u017f", "'s", "'", "''", "’s",
    " ", "  ", "   ", "\n", "\r\n", "\n\n", " \n", "\n ", "\t", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028",
    "\x0b", "\x0c", "\x1c", "\u200b", "\ufeff", "1", "12", "123", "1234", "3.14", "½", "Ⅷ", "٣", "１２", "x²",
    "é", "e\u0301", "a\u0300\u0301", "\u0301", "\u212b", "\u212a", "\u1e9b\u0323", "\u0958", "\u0344", "ß", "ﬁ",
    "=\u0338", "\u1112\u1161\u11ab", "한국어", "한\u11ab", "火车", "が", "か\u3099", "поезд", "الق", "हि", "ไท",
    "!", "...", "!?\n", "--", "://", "_", "#", "(a)", "<|", "|>", "<|end", "oftext|>", "<", ">", "{", "}",
    "😀", "👨‍👩‍👧", "🇫🇮", "\U0002ebf0", "\U00031350", "\u1c89", "\U00010d40", "\U000e0061", "\u0378", "\u00ad",
]


def random_character(draw):
    code = draw.choice([draw.randrange(1, 0x300), draw.randrange(1, 0x3000),
                        draw.randrange(1, 0xD800), draw.randrange(0xE000, 0x110000)])
    return chr(code)


def odd_documents(count, seed, special):
    """`special`: contents of added tokens, woven in like the other fragments."""
    draw = random.Random(seed)
    for _ in range(count):
        parts = []
        for _ in range(draw.randrange(1, 24)):
            kind = draw.random()
            if kind < 0.72:
                parts.append(draw.choice(FRAGMENTS))
            elif kind < 0.87:
                parts.append(draw.choice(special))
            else:
                parts.append(random_character(draw))
        yield "".join(parts)
