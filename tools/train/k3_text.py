"""The target's tokenizer and chat frame in a few lines, enough to prepare training text.

Pieces are cut with the rules of the K3 tokenizer (via the `regex` module) and merged by lowest rank. Special tokens are
added by `chat_prompt` as ids; text never turns into specials here.
"""

import base64
import os

import regex

_WORD = r"[^\r\n\p{L}\p{N}]?"
_UPPER = r"[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]--\p{Han}]"
_LOWER = r"[[\p{Ll}\p{Lm}\p{Lo}\p{M}]--\p{Han}]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PIECE = regex.compile(
    "|".join(
        [
            r"\p{Han}+",
            _WORD + _UPPER + "*" + _LOWER + "+" + _CONTRACTION,
            _WORD + _UPPER + "+" + _LOWER + "*" + _CONTRACTION,
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    ),
    regex.V1,
)

_EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort=%s`."
)


class K3Text:
    def __init__(self, folder):
        with open(os.path.join(folder, "tiktoken.model"), "rb") as file:
            self.bytes_of = [base64.b64decode(line.split()[0]) for line in file if line.strip()]
        self.rank = {data: index for index, data in enumerate(self.bytes_of)}
        first = len(self.bytes_of)  # the 256 specials follow the ranks
        self.bos, self.eos, self.end_of_message = first, first + 1, first + 2
        self.open, self.close, self.sep = first + 3, first + 4, first + 5
        self.stops = (self.eos, self.end_of_message)
        self._cache = {}

    def _merge(self, data):
        parts = [data[i : i + 1] for i in range(len(data))]
        while len(parts) > 1:
            best = min((self.rank.get(parts[i] + parts[i + 1], 1 << 30), i) for i in range(len(parts) - 1))
            if best[0] == 1 << 30:
                break
            parts[best[1] : best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]
        return [self.rank[part] for part in parts]

    def encode(self, text):
        ids = []
        for match in _PIECE.finditer(text):
            piece = match.group()
            found = self._cache.get(piece)
            if found is None:
                found = self._cache[piece] = self._merge(piece.encode())
            ids += found
        return ids

    def decode(self, ids):
        """Text of ordinary ids; specials are left out, broken UTF-8 is replaced."""
        return b"".join(self.bytes_of[i] for i in ids if i < len(self.bytes_of)).decode(errors="replace")

    # -- chat -------------------------------------------------------------------------------------

    def _message(self, attributes, text):
        return (
            [self.open]
            + self.encode("message" + attributes)
            + [self.sep]
            + self.encode(text)
            + [self.close]
            + self.encode("message")
            + [self.sep, self.end_of_message]
        )

    def user_open(self):
        """What stands before the text of a user's message."""
        return [self.open] + self.encode('message role="user"') + [self.sep]

    def system(self, effort):
        """The message that opens a conversation with thinking; nothing without."""
        if effort is None:
            return []
        return self._message(' role="system" type="thinking-effort"', _EFFORT % effort)

    def turn(self, question, effort):
        """A user's message and the opening of the answer: the target continues after it."""
        channel = "response" if effort is None else "think"
        return (
            self._message(' role="user"', question)
            + [self.open]
            + self.encode('message role="assistant"')
            + [self.sep, self.open]
            + self.encode(channel)
            + [self.sep]
        )
