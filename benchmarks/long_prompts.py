"""Requests with long answers, one per kind of text, for `record_traces.py`.

Policies may be tuned on what `LONG_PROMPTS` gives; what `JUDGE_PROMPTS` gives is kept out of that, to judge by.
"""

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

_LOG = """\
08:02 pump 3 started, 08:05 pressure 4.1 bar, 08:17 valve B opened by Kessler, 08:18 pressure 3.2 bar,
08:31 alarm 114 (low level, tank 2), 08:33 acknowledged by Kessler, 08:40 tank 2 refilled from line 5,
09:12 pump 3 stopped, 09:13 pump 4 started, 09:20 pressure 4.0 bar, 09:55 filter 7 changed by Oduya,
10:04 alarm 120 (vibration, pump 4), 10:06 acknowledged by Oduya, 10:15 pump 4 stopped, 10:16 pump 3 started
"""

JUDGE_PROMPTS = {
    "code": "Write a complete command line program in Python that keeps a list of tasks in a SQLite file: add, list, "
    "done, remove, a due date for each task, coloured output, error messages, and a docstring for every function.",
    "extraction": "Turn this log into a JSON array, an object per entry with the keys time, event, device, value, unit "
    f"and person (null where there is none), in the same order, nothing else:\n\n{_LOG}",
    "translation": "Translate this into German, then into French, then into Spanish, sentence by sentence, each "
    "time the whole text: The harbour lay still when the last ferry came in. Nobody waited on the quay but a boy with "
    "a lantern, who had been told that his uncle would be on board. He counted the passengers as they came down the "
    "gangway: nine, ten, eleven. Then the lights on deck went out. He turned to go home, and found that somebody had "
    "taken his bicycle.",
    "reasoning": "Explain step by step, with every intermediate result: 1) What is 17 % of 2,340 plus 23 % of 1,180? "
    "2) A train leaves at 9:40 with 84 km/h, another follows at 10:25 with 112 km/h; when does it catch up, and where? "
    "3) In how many ways can five books stand on a shelf if two of them must not stand side by side? 4) A cone "
    "of height 12 cm holds 0.5 litres; what is its radius?",
    "creative": "Write a long story, in at least seven paragraphs, about a night train that stops at a station which "
    "is on no map, and about the one passenger who gets off.",
    "chat": "My daughter of fifteen wants to leave school and become a racing mechanic. Write me a long, kind and "
    "honest answer: what speaks for it, what against it, and how we should talk about it as a family.",
    "recipe": "Give me a menu of four courses for eight guests, one of them vegan: for every course the list of "
    "ingredients with amounts, the steps, and what can be done the day before.",
    "letter": "Write a formal letter of complaint to an airline about a flight that was cancelled without notice, with "
    "all the facts, the rules that apply, what is asked for and by when; then a friendlier version of the same letter.",
    "query": "Write the SQL for a small shop: tables for customers, products, orders and order lines with keys and "
    "constraints, twenty rows of sample data, and ten reports as queries, each with a comment.",
    "list": "List forty things to check before a house is bought, numbered, each with one sentence that says why it "
    "matters and what to look for.",
}
