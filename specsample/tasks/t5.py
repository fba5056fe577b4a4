"""Inputs of T5's encoder, as its preprocessors write them (1910.10683, appendix D)."""

from __future__ import annotations

from specsample.errors import UserError

SUMMARIZE = "summarize: "

LANGUAGES = {
    "ar": "Arabic", "bg": "Bulgarian", "cs": "Czech", "da": "Danish", "de": "German",
    "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese",
    "kk": "Kazakh", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "nl": "Dutch",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sl": "Slovenian", "sv": "Swedish", "th": "Thai", "tr": "Turkish",
    "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def language(code: str) -> str:
    """The English name of a language.

    Raises:
      UserError: the code is not known here.
    """
    if code not in LANGUAGES:
        raise UserError(f"unknown language {code!r}; choose from {', '.join(LANGUAGES)}.")
    return LANGUAGES[code]


def translate(source: str, target: str) -> str:
    """What stands before a text to translate.

    Args:
      source: code of the text's language.
      target: code of the language that it is to be put into.
    """
    return f"translate {language(source)} to {language(target)}: "
