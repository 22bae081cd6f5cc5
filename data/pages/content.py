"""What the bundled pages say: words, numbers, prices, dates, codes, and the fields of receipts and forms."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

WORDS = tuple((Path(__file__).parent / "words.txt").read_text(encoding="ascii").split())
CODE_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"  # without I, O and Q, which many fonts print like 1 and 0
CODE_DIGITS = "23456789"


@dataclass(frozen=True)
class Writer:
    """Writes text from one random stream; the same stream gives the same text."""

    random: random.Random

    def token(self) -> str:
        """Give one printed word: 77 % words (5 % with a mark), 9 % numbers, 9 % prices and dates, 5 % codes."""
        kinds = (self.word, self.number, self.price, self.date, self.code, self.marked)
        return self.random.choices(kinds, (72, 9, 5, 4, 5, 5))[0]()

    def word(self) -> str:
        """Give a dictionary word: 60 % lower case, 25 % Capitalised, 15 % UPPER."""
        word = self.random.choice(WORDS)
        return self.random.choices((word, word.capitalize(), word.upper()), (60, 25, 15))[0]

    def name(self) -> str:
        """Give a Capitalised word of at least three letters."""
        return self.random.choice([word for word in WORDS if len(word) > 2]).capitalize()

    def number(self) -> str:
        """Give an integer of one to five digits, a fifth of them as a percentage."""
        digits = self.random.randint(1, 5)
        number = str(self.random.randint(10 ** (digits - 1), 10**digits - 1))
        return f"{number[:2]}%" if self.random.random() < 0.2 else number

    def price(self) -> str:
        """Give a price such as ``$38.50``, ``$12`` or ``7.95``."""
        whole, cents = self.random.randint(1, 199), self.random.randrange(0, 100, 5)
        return self.random.choice((f"${whole}.{cents:02d}", f"${whole}", f"{whole}.{cents:02d}"))

    def date(self) -> str:
        """Give a date such as ``7/14/2019``."""
        return f"{self.random.randint(1, 12)}/{self.random.randint(1, 28)}/{self.random.randint(1980, 2030)}"

    def code(self) -> str:
        """Give a short code such as ``KX47`` or ``B9327``."""
        letters = self.random.choices(CODE_LETTERS, k=self.random.randint(1, 3))
        return "".join(letters + self.random.choices(CODE_DIGITS, k=self.random.randint(2, 4)))

    def marked(self) -> str:
        """Give a word that ends in a punctuation mark."""
        return self.word() + self.random.choice(",.:!?;")

    def count(self) -> str:
        """Give a small integer."""
        return str(self.random.randint(1, 40))

    def phone(self) -> str:
        """Give a phone number in two groups."""
        return f"{self.random.randint(200, 999)} {self.random.randint(1000, 9999)}"

    def names(self) -> str:
        """Give one or two names."""
        return " ".join(self.name() for _ in range(self.random.choice((1, 1, 2))))

    def street(self) -> str:
        """Give a house number and a name."""
        return f"{self.count()} {self.name()}"

    def amount(self) -> str:
        """Give a price with a dollar sign and cents."""
        return f"${self.random.randint(1, 199)}.{self.random.randrange(0, 100, 5):02d}"

    def receipt(self) -> list[str]:
        """Give the lines of a receipt: a shop, the date, then one item and its price a line, the total last."""
        items = [f"{self.name()} {self.amount()}" for _ in range(12)]
        return [self.name().upper(), f"date: {self.date()}", *items, f"total: {self.amount()}"]

    def form(self) -> list[str]:
        """Give the lines of a form, one ``label: value`` a line.

        Labels are words like any others: of a fixed set of labels a model could guess some without reading.
        """
        values = (self.names, self.date, self.phone, self.count, self.amount, self.code, self.street, self.number)
        return [f"{self.name().lower()}: {self.random.choice(values)()}" for _ in range(14)]
