"""Requests with long answers, one per kind of text, for `record_traces.py`."""

from pathlib import Path

from gains import FUNCTION

_SOURCE = (Path(__file__).parents[1] / "localspec" / "engine" / "process" / "cancel.py").read_text(encoding="utf-8")

_STAFF = """\
Mara Lindqvist, born 1984, joined in 2012, head of the bindery, desk 4-17, extension 2203, speaks Swedish and German.
Ioan Petrescu, born 1991, joined in 2019, typesetter, desk 2-03, extension 2117, speaks Romanian and French.
Aiko Tanabe, born 1978, joined in 2005, colour proofing, desk 4-02, extension 2290, speaks Japanese and English.
Yusuf Demir, born 1969, joined in 1996, press operator, desk 1-11, extension 2041, speaks Turkish and German.
Chloe Martin, born 1996, joined in 2021, apprentice, desk 1-14, extension 2042, speaks French and English.
Rafael Souza, born 1982, joined in 2010, purchasing, desk 3-08, extension 2155, speaks Portuguese and Spanish.
Hanna Virtanen, born 1988, joined in 2015, customer service, desk 3-01, extension 2160, speaks Finnish and English.
Tariq Aziz, born 1975, joined in 2003, accounts, desk 3-12, extension 2171, speaks Urdu and English.
"""

LONG_PROMPTS = {
    "code": "Write a complete Python module for a small library of books: dataclasses for books, readers and loans, a "
    "class Library with methods to add, remove, search, lend and return, saving to and loading from JSON, and tests "
    "for all of it with pytest.",
    "edit": "Rename the method `average` to `mean` and `spread` to `deviation` in the first file, change nothing in "
    f"the second one, and print both files whole:\n\n```python\n{FUNCTION}```\n\n```python\n{_SOURCE}```",
    "extraction": "Give all of this as a JSON array, an object per person with the keys name, born, joined, work, "
    f"desk, extension and languages (an array), nothing else:\n\n{_STAFF}",
    "chat": "I have just moved to a small town where I know nobody, and I work from home. Give me a long and honest "
    "letter of advice: how to meet people, how to shape the days, and what to do when it gets lonely.",
    "reasoning": "Solve each of these step by step. 1) A tank of 900 litres is filled by two taps of 12 and 18 litres "
    "a minute and emptied by a leak of 5; how long does it take? 2) How many numbers below 1000 are divisible by 6 "
    "or 15? 3) Three dice are thrown; how likely is a sum of 10? 4) A rectangle has a perimeter of 46 and an area "
    "of 120; what are its sides?",
    "creative": "Write a long story, in at least eight paragraphs, about two clockmakers who share a workshop and have "
    "not spoken to each other for ten years.",
}
