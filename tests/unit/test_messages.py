"""The translations are whole, and what is read of the sources is what is there."""

from __future__ import annotations

import gettext
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from babel.messages.catalog import Catalog
from django.conf import settings

ROOT = Path(__file__).resolve().parents[2]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("messages", ROOT / "scripts" / "messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["messages"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


messages = _load()
Sentence = messages.Sentence


def test_every_sentence_is_translated_and_written() -> None:
    """Else: `python -m scripts.messages`, then fill the .po files; see docs/translating.md."""
    assert messages.problems() == []


def test_the_languages_are_those_of_the_settings() -> None:
    assert [*messages.LANGUAGES, "en"] == sorted(
        dict(settings.LANGUAGES), key=lambda code: (code == "en", code)
    )


def test_sentences_of_scripts_templates_and_python_are_found() -> None:
    script = 'say(t("A \\"b\\"")); plural("{count} c", "{count} cs", n); start("no"); x.t("no")'
    assert list(messages.from_script(script)) == [
        Sentence('A "b"'),
        Sentence("{count} c", plural="{count} cs"),
    ]
    template = """{% load i18n %}
      <p>It's {% translate "one" %}{{ x|default:_("two") }}</p>
        {% blocktranslate trimmed count n=many %}{{ n }} day{% plural %}
          {{ n }} days{% endblocktranslate %}"""
    assert set(messages.from_template(template)) == {
        Sentence("one"),
        Sentence("two"),
        Sentence("%(n)s day", plural="%(n)s days"),
    }
    python = 'a = _("three" " four"), gettext(text), ngettext("d", "ds", 2), pgettext("e", "f")'
    assert list(messages.from_python(python)) == [
        Sentence("three four"),
        Sentence("d", plural="ds"),
        Sentence("f", context="e"),
    ]


@pytest.mark.parametrize(
    ("text", "translated", "wrong"),
    [
        ("{a} is {b}", "{b} {a}", False),
        ("{a} is {b}", "{a}", True),
        ("{a}", "{b}", True),
        ("{a}", "", True),
        (
            ("{count} a", "{count} as"),
            ("لا", "واحد", "اثنان", "{count}", "{count}", "{count}"),
            False,
        ),
        (("{count} a", "{count} as"), ("لا", "واحد", "اثنان", "x", "{count}", "{count}"), True),
        (
            ("{count} a", "{count} as"),
            ("لا", "واحد", "{no}", "{count}", "{count}", "{count}"),
            True,
        ),
        (("{count} a", "{count} as"), ("{count}", "{count}"), True),
    ],
)
def test_what_a_translation_lacks_is_told(
    text: str | tuple[str, ...], translated: str | tuple[str, ...], wrong: bool
) -> None:
    catalogue = Catalog(locale="ar")
    catalogue.add(text, translated)
    assert bool(list(messages._form_problems("ar", "djangojs", catalogue))) is wrong


def test_an_unsure_translation_and_a_missing_one_are_told() -> None:
    catalogue = Catalog(locale="hi")
    catalogue.add("a", "क", flags=["fuzzy"])
    assert list(messages._form_problems("hi", "django", catalogue))
    found = {Sentence("a"): {"x.py"}, Sentence("b"): {"x.py"}}
    assert list(messages._sentence_problems("hi", "django", catalogue, found)) == [
        "hi/django: missing: b"
    ]


def test_what_is_translated_stays_when_sentences_come_and_go() -> None:
    old = messages.empty_catalogue("hi", "django")
    old.add("stays", "रहता")
    old.add("goes", "जाता")
    found = {Sentence("stays"): {"a.py"}, Sentence("comes"): {"b.html"}}
    new = messages.updated(old, "hi", "django", found)
    assert {one.id: one.string for one in new if one.id} == {"stays": "रहता", "comes": None}


@pytest.mark.parametrize(("count", "form"), [(0, 0), (1, 1), (2, 2), (5, 3), (11, 4), (100, 5)])
def test_arabic_has_six_forms(count: int, form: int) -> None:
    path: Path = messages.po_path("ar", "django").with_suffix(".mo")
    with path.open("rb") as file:
        read = gettext.GNUTranslations(file)
    forms = [read.ngettext("%(count)d day", "%(count)d days", n) for n in (0, 1, 2, 5, 11, 100)]
    assert read.ngettext("%(count)d day", "%(count)d days", count) == forms[form]
    assert len(set(forms)) == 6


def test_each_language_has_its_module_of_words() -> None:
    for language in dict(settings.LANGUAGES):
        path = ROOT / "static" / "js" / "catalogues" / f"{language}.js"
        assert path.read_text().startswith("export const locale = ")
