"""Captions to translate from English to German; written for this project, in plain words."""

from __future__ import annotations

from specsample.tasks import t5
from specsample.tasks.prompts import Example, Task

_PAIRS = (
    ("A man is playing the guitar on a bench.", "Ein Mann spielt auf einer Bank Gitarre."),
    ("Two children are running on the beach.", "Zwei Kinder laufen am Strand."),
    ("A brown dog is jumping over a fence.", "Ein brauner Hund springt über einen Zaun."),
    ("A woman in a red dress is dancing.", "Eine Frau in einem roten Kleid tanzt."),
    ("Three people are sitting at a table.", "Drei Personen sitzen an einem Tisch."),
    ("A boy is riding his bike in the park.", "Ein Junge fährt im Park mit seinem Fahrrad."),
    ("A young girl is eating an ice cream.", "Ein junges Mädchen isst ein Eis."),
    ("Two men are working on a roof.", "Zwei Männer arbeiten auf einem Dach."),
    ("A black cat is sleeping on a chair.", "Eine schwarze Katze schläft auf einem Stuhl."),
    ("People are waiting at a bus stop.", "Menschen warten an einer Bushaltestelle."),
    ("A man with a hat is reading a newspaper.", "Ein Mann mit einem Hut liest eine Zeitung."),
    ("A group of students is standing in front of a school.",
     "Eine Gruppe von Schülern steht vor einer Schule."),
    ("An old woman is buying fruit at the market.", "Eine alte Frau kauft auf dem Markt Obst."),
    ("A white horse is standing in a field.", "Ein weißes Pferd steht auf einem Feld."),
    ("Two girls are playing football on the grass.",
     "Zwei Mädchen spielen auf dem Rasen Fußball."),
    ("A man is climbing a rock.", "Ein Mann klettert auf einen Felsen."),
    ("A child in a blue jacket is playing in the snow.",
     "Ein Kind in einer blauen Jacke spielt im Schnee."),
    ("A woman is walking her dog along a street.",
     "Eine Frau geht mit ihrem Hund eine Straße entlang."),
    ("Four men are standing on a stage.", "Vier Männer stehen auf einer Bühne."),
    ("A man is cooking in a kitchen.", "Ein Mann kocht in einer Küche."),
    ("Two dogs are playing in the water.", "Zwei Hunde spielen im Wasser."),
    ("A woman is holding a baby in her arms.", "Eine Frau hält ein Baby in den Armen."),
    ("A boy in a green shirt is throwing a ball.",
     "Ein Junge in einem grünen Hemd wirft einen Ball."),
    ("Several people are walking through the city at night.",
     "Mehrere Menschen gehen nachts durch die Stadt."),
)  # fmt: skip


def load() -> Task:
    """Returns the captions with their translations, as T5 is asked for them."""
    prefix = t5.translate("en", "de")
    examples = tuple(
        Example(str(number), f"English: {text}\nGerman:", inputs=prefix + text, reference=answer)
        for number, (text, answer) in enumerate(_PAIRS)
    )
    return Task("captions", examples, ("\n",), ("bleu", "chrf"))
