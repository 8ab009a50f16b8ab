"""Short texts in many scripts, written for this project (CC0): seeds of the tokenizer and of its test strings."""

import random

SAMPLES = (
    r"""
The quick brown fox jumps over the lazy dog.|I'm sure they'll say it's fine; we've seen what you'd do.
HTTPServer2 can't parse "x-y_z" (yet)!|Où est l'école? Ça va très bien, merci.
¿Dónde está el niño? ¡Mañana será otro día!|Der Bär läuft über die große Straße.|São Paulo não dorme à noite.
Zażółć gęślą jaźń.|Příliš žluťoučký kůň úpěl ďábelské ódy.|Árvíztűrő tükörfúrógép.|Iğdır'ın ılık şöleni.
Þú ert ágætur, Æsa.|Đường phố Hà Nội rất đông người.|Доброе утро, как у вас дела?|Съешь ещё этих мягких булок.
Київ — столиця України, її історія.|Ђурђевак и њива.|Καλημέρα, τι κάνεις σήμερα;|Η Αθήνα είναι όμορφη.
Բարեւ ձեզ, ինչպե՞ս եք։|გამარჯობა, როგორ ხარ?|שלום, מה שלומך היום?|שָׁלוֹם עֲלֵיכֶם|السلام عليكم، كيف حالك؟
مُحَمَّدٌ يَكْتُبُ|سلام، حال شما چطور است؟|آپ کیسے ہیں؟|नमस्ते, आप कैसे हैं?|दिल्ली भारत की राजधानी है।
আপনি কেমন আছেন?|ਸਤ ਸ੍ਰੀ ਅਕਾਲ|તમે કેમ છો?|வணக்கம், எப்படி இருக்கிறீர்கள்?|నమస్కారం, ఎలా ఉన్నారు?
ನಮಸ್ಕಾರ, ಹೇಗಿದ್ದೀರಿ?|സുഖമാണോ?|ඔබට කොහොමද?|สวัสดีครับ สบายดีไหม|ສະບາຍດີ|မင်္ဂလာပါ|សួស្តី អ្នកសុខសប្បាយទេ?
བཀྲ་ཤིས་བདེ་ལེགས།|ሰላም፣ እንዴት ነህ?|ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ|ᐃᓄᒃᑎᑐᑦ|ᠮᠣᠩᠭᠣᠯ|ߒߞߏ|你好，世界！今天天气很好。|東京は日本の首都です。|ありがとうございます、またね。
カタカナとひらがなを混ぜる。|안녕하세요, 오늘 어때요?|臺灣的首都是臺北。|㈱テスト①②③|ﾊﾝｶｸ ｶﾅ|🙂🚀👩‍💻 👍🏽 🇫🇷🇯🇵|∑ x² ≤ √(α+β) ≠ ∞|½ ⅓ Ⅻ ④ ٣٤٥ १२३ ৪৫
«quote» “quote” „quote‟ ‹x›|a\u0301e\u0300n\u0303 cafe\u0301|\u212b \u2126 \ufb01n \uff21\uff22 \u1e9b\u0323
def f(x):\n    return x ** 2  # note\n|for (int i = 0; i < 10; ++i) { a[i] += 3.14e-5; }
{"key": [1, 2, null], "n": -0.5}|SELECT * FROM t WHERE a >= 7;|<p class="x">Hi&nbsp;there</p>
\t\tindent\r\nnext\r\n\r\nlast
""".strip()
    .replace("\n", "|")
    .split("|")
)
SAMPLES = [sample.encode("ascii", "backslashreplace").decode("unicode_escape") for sample in SAMPLES if sample]

# First and last letters of a range of each script; only code points that have been in Unicode for long.
_RANGES = (
    (0x61, 0x7A),
    (0x41, 0x5A),
    (0xC0, 0x17F),
    (0x3B1, 0x3C9),
    (0x410, 0x44F),
    (0x561, 0x586),
    (0x5D0, 0x5EA),
    (0x621, 0x63A),
    (0x905, 0x939),
    (0x995, 0x9A8),
    (0xB95, 0xB95),
    (0xC15, 0xC28),
    (0xE01, 0xE2E),
    (0xE81, 0xE82),
    (0x10D0, 0x10F0),
    (0x1200, 0x1246),
    (0x1780, 0x17A2),
    (0x1100, 0x1112),
    (0x3041, 0x3093),
    (0x30A1, 0x30F6),
    (0x4E00, 0x9FA5),
    (0xAC00, 0xD7A3),
    (0x10400, 0x1044F),
    (0x20000, 0x2A6D6),
    (0x30, 0x39),
    (0x660, 0x669),
    (0x966, 0x96F),
    (0x2160, 0x2188),
    (0x300, 0x315),
    (0x5B0, 0x5BC),
    (0x64B, 0x652),
    (0x21, 0x2F),
    (0x3A, 0x40),
    (0x5B, 0x60),
    (0x7B, 0x7E),
    (0xA1, 0xBF),
    (0x2010, 0x2027),
    (0x2190, 0x21FF),
    (0x2200, 0x22FF),
    (0x3000, 0x303F),
    (0x1F300, 0x1F3FA),
    (0x1F600, 0x1F64F),
    (0xE000, 0xE00F),
    (0xF900, 0xFA0D),
    (0x1D400, 0x1D433),
    (0x1, 0x1F),
)
_SPACES = (
    " ",
    " ",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\t",
    "\r\n",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u2028",
    " \n ",
    "\u200b",
    "\ufeff",
    "",
)
_TAILS = (
    "'s",
    "'LL",
    "'re ",
    "'D",
    "'\u017f",
    "\u2019s",
    "...",
    "!!\n",
    " !",
    "0",
    "12345",
    "\u0301",
    "\u0323\u0307",
    "\u200d",
    "\ufe0f",
)


def strings(count, seed):
    """`count` different strings: the samples, cuts and mixtures of them, runs of random letters, spaces and marks."""
    random_, out = random.Random(seed), dict.fromkeys(["", " ", "\n", "a", *SAMPLES])
    while len(out) < count:
        parts = []
        for _ in range(random_.choice((1, 1, 2, 3, 6))):
            kind = random_.random()
            if kind < 0.5:
                sample = random_.choice(SAMPLES)
                start = random_.randint(0, len(sample) - 1)
                parts.append(sample[start : start + random_.randint(1, 24)])
            elif kind < 0.85:
                first, last = random_.choice(_RANGES)
                parts.append("".join(chr(random_.randint(first, last)) for _ in range(random_.randint(1, 8))))
            else:
                parts.append(random_.choice(_TAILS))
            parts.append(random_.choice(_SPACES))
        out["".join(parts)[:120]] = None
    return list(out)[:count]
