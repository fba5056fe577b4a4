"""Input-grounded prompts: the answer repeats much of what was given.

Editing, extraction and summaries are where copying from the prompt pays. The texts were written for
this project; all are framed by the chat template.
"""

from __future__ import annotations

from specsample.tasks.prompts import Example, Task

_INVENTORY = """class Inventory:
    def __init__(self):
        self.items = {}

    def add(self, name, count):
        if count < 0:
            raise ValueError("count must not be negative")
        self.items[name] = self.items.get(name, 0) + count

    def remove(self, name, count):
        if self.items.get(name, 0) < count:
            raise ValueError("not enough items")
        self.items[name] = self.items[name] - count

    def total(self):
        return sum(self.items.values())
"""

_HARBOUR = """\
The harbour of Ostrava Bay was built in 1874 by a company that mined slate in the hills \
above it. For sixty years barges carried slate to the railway at Port Ellery. When the \
mine closed in 1936 the harbour lost its purpose, and the breakwater was left to the sea. \
In 1998 a group of volunteers began to repair the breakwater with slate from the old mine. \
The harbour opened again in 2004, for fishing boats and for visitors, and it now earns \
more in a summer than the mine earned in its best year."""

_MINUTES = """\
Meeting of the garden committee, 12 May. Present: Rosa, Felix, Amara, Jun. Rosa reported \
that the water tank leaks and that a new valve costs 40 euros. Felix will buy the valve \
before Saturday. Amara asked for help with the compost heap, and Jun will help her on \
Sunday. The committee agreed to open the gate at eight in the morning from June on. The \
next meeting of the garden committee is on 9 June."""

_LETTER = """\
Dear Mr. Okafor, thank you for you're letter of 3 March. We have recieved the two boxes of \
books, but one of the boxes were damaged and the books in it is wet. Could you please send \
an other copy of the atlas, and of the two books on birds? We will of course pay for the \
shiping. The reading room will be closed from 10 to 14 March, becuase the floor is being \
painted, so please do not send anything befor the 15th. With kind regards, the libary of \
Northfield."""

_TABLE = """name: Lena Fischer, city: Bremen, age: 41
name: Tomas Novak, city: Brno, age: 29
name: Aiko Tanaka, city: Sendai, age: 35
name: Mary Owusu, city: Kumasi, age: 52"""

EXAMPLES = (
    Example(
        "rename",
        "Rename the method `remove` to `take` and repeat the whole class, otherwise unchanged.\n\n"
        f"```python\n{_INVENTORY}```",
        chat=True,
    ),
    Example(
        "docstrings",
        "Add a one-line docstring to every method of this class and give the complete class.\n\n"
        f"```python\n{_INVENTORY}```",
        chat=True,
    ),
    Example(
        "summary",
        f"Summarise this text in three sentences, in its own words.\n\n{_HARBOUR}",
        chat=True,
    ),
    Example(
        "actions",
        "List who will do what, one line a person, quoting the minutes.\n\n" + _MINUTES,
        chat=True,
    ),
    Example(
        "correct",
        f"Correct the spelling of this letter and repeat the whole letter.\n\n{_LETTER}",
        chat=True,
    ),
    Example(
        "reformat",
        f"Write this list as JSON, one object a line with the same keys.\n\n{_TABLE}",
        chat=True,
    ),
)


def load() -> Task:
    """Returns the prompts."""
    return Task("grounded", EXAMPLES)
