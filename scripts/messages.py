"""The catalogues of translations, from the sources and back: `python -m scripts.messages`.

Reads every sentence out of Python, templates and JavaScript into locale/<language>/LC_MESSAGES/
(django.po, djangojs.po), keeps what is translated, and writes what the product reads: the .mo files
beside them and static/js/catalogues/<language>.js. `--check` writes nothing and says what is wrong.
docs/translating.md tells the whole way. Needs Babel (requirements-dev.txt), no GNU gettext.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import allauth
import django
from babel import Locale
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_python
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from babel.plural import to_gettext
from django.conf import settings
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parent.parent
DJANGO = Path(django.__file__).parent
LANGUAGES = tuple(
    sorted(path.parent.name for path in (ROOT / "locale").glob("*/LC_MESSAGES"))
)  # all but English, whose sentences are the keys
# Numbers, dates and sorting. Arabic pages keep the digits that the server writes too.
LOCALE_TAGS = {"ar": "ar-u-nu-latn"}
PACKAGES = ("accounts", "chatproject", "conversations", "generation", "quotas", "safety")
# Shown as django-allauth has them. It knows no Hindi, and speaks in other words than ours.
BORROWED_TEMPLATES = (
    "account/email/email_changed*.txt",
    "account/email/email_confirm_*.txt",
    "account/email/email_deleted*.txt",
    "account/email/password_[cs]*.txt",
    "account/email/password_reset_[ms]*.txt",
    "account/messages/cannot*.txt",
    "account/messages/email_[cd]*.txt",
    "account/messages/password_*.txt",
    "account/messages/primary*.txt",
    "account/messages/unverified*.txt",
    "mfa/email/*.txt",
    "mfa/messages/*.txt",
    "socialaccount/email/*.txt",
    "socialaccount/messages/*.txt",
)
# Django's own, which lack Hindi.
BORROWED_MODULES = ("contrib/auth/password_validation.py",)
# For administrators, who read English here (docs/translating.md).
ADMIN_TEMPLATES = ("admin/", "unfold/", "accounts/admin_")
KEYWORDS = {
    "_": None,
    "gettext": None,
    "gettext_lazy": None,
    "gettext_noop": None,
    "ngettext": (1, 2),
    "ngettext_lazy": (1, 2),
    "pgettext": ((1, "c"), 2),
    "pgettext_lazy": ((1, "c"), 2),
}
TAGS = ("zero", "one", "two", "few", "many", "other")

_LITERAL = r'\s*"((?:[^"\\\n]|\\.)*)"'
_CALL = r"(?<![\w.#$])"
JS_TEXT = re.compile(_CALL + r"t\(" + _LITERAL)
JS_PLURAL = re.compile(_CALL + r"plural\(" + _LITERAL + r"\s*," + _LITERAL)
JS_UNKNOWN = re.compile(_CALL + r"(?:t|plural)\((?!\s*\")")
PLACEHOLDERS = {
    "django": re.compile(r"%(?:\(\w+\))?[sd]|</?\w+|%%"),
    "djangojs": re.compile(r"\{\w+\}"),
}


@dataclass(frozen=True)
class Sentence:
    """One to translate: `plural` is "" for one without plural forms."""

    text: str
    plural: str = ""
    context: str | None = None

    @property
    def key(self) -> str | tuple[str, str]:
        return (self.text, self.plural) if self.plural else self.text


Found = dict[Sentence, set[str]]  # → the files it is in


# --- out of the sources ---------------------------------------------------------------------------


def from_python(text: str) -> Iterator[Sentence]:
    found: Iterable[tuple[Any, ...]] = extract_python(io.BytesIO(text.encode()), KEYWORDS, [], {})
    for _line, function, strings, *_ in found:
        if not strings:
            continue  # of a variable: its text is marked where it is written
        given = [strings] if isinstance(strings, str) else [str(one) for one in strings]
        if function.startswith("pgettext"):
            yield Sentence(given[1], context=given[0])
        elif function.startswith("ngettext"):
            yield Sentence(given[0], plural=given[1])
        elif given[0]:
            yield Sentence(given[0])


def from_template(text: str) -> Iterator[Sentence]:
    """Django turns a template into something like Python; indentation means nothing there."""
    python = templatize(text)
    return from_python("\n".join(line.strip() for line in python.splitlines()))


def from_script(text: str) -> Iterator[Sentence]:
    for match in JS_TEXT.finditer(text):
        yield Sentence(json.loads(f'"{match[1]}"'))
    for match in JS_PLURAL.finditer(text):
        yield Sentence(json.loads(f'"{match[1]}"'), plural=json.loads(f'"{match[2]}"'))


def scripts() -> Iterator[Path]:
    for path in sorted((ROOT / "static" / "js").rglob("*.js")):
        if path.parent.name != "catalogues" and path.name != "i18n.js":
            yield path


def templates() -> Iterator[Path]:
    for path in sorted((ROOT / "templates").rglob("*.*")):
        if not path.relative_to(ROOT / "templates").as_posix().startswith(ADMIN_TEMPLATES):
            yield path


def borrowed() -> Iterator[Path]:
    root = Path(allauth.__file__).parent / "templates"
    for pattern in BORROWED_TEMPLATES:
        for path in sorted(root.glob(pattern)):
            if not (ROOT / "templates" / path.relative_to(root)).exists():
                yield path


def pythons() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path


def gather() -> dict[str, Found]:
    """Domain → every sentence of the sources."""
    found: dict[str, Found] = {"django": {}, "djangojs": {}}
    for domain, paths, read in (
        ("django", pythons(), from_python),
        ("django", templates(), from_template),
        ("django", borrowed(), from_template),
        ("django", (DJANGO / name for name in BORROWED_MODULES), from_python),
        ("djangojs", scripts(), from_script),
    ):
        for path in paths:
            for sentence in read(path.read_text(encoding="utf-8")):
                names = found[domain].setdefault(sentence, set())
                names.add(_name(path))
    return found


def _name(path: Path) -> str:
    ours = path.is_relative_to(ROOT) and "site-packages" not in path.parts
    return path.relative_to(ROOT).as_posix() if ours else path.name


# --- catalogues -----------------------------------------------------------------------------------


def po_path(language: str, domain: str) -> Path:
    return ROOT / "locale" / language / "LC_MESSAGES" / f"{domain}.po"


def plural_tags(language: str) -> list[str]:
    """The categories that this language has, in the order of its gettext forms."""
    known = Locale.parse(language).plural_form.tags | {"other"}
    return [tag for tag in TAGS if tag in known]


def empty_catalogue(language: str, domain: str) -> Catalog:
    catalogue = Catalog(locale=language, domain=domain, fuzzy=False)
    expression = to_gettext(Locale.parse(language).plural_form)
    count, _, rule = expression.partition("; ")
    _set_plural(catalogue, int(count.removeprefix("nplurals=")), rule.removeprefix("plural="))
    return catalogue


def _set_plural(catalogue: Catalog, count: int, rule: str) -> None:
    """CLDR's rule; Babel's own differs in the order of the forms, and has no way to say another."""
    vars(catalogue).update(_num_plurals=count, _plural_expr=rule.rstrip(";"))


def read_catalogue(language: str, domain: str) -> Catalog:
    path = po_path(language, domain)
    if not path.exists():
        return empty_catalogue(language, domain)
    with path.open("rb") as file:
        return read_po(file, locale=language, domain=domain, abort_invalid=True)


def updated(old: Catalog, language: str, domain: str, found: Found) -> Catalog:
    """All sentences of the sources, with the translations that there were."""
    new = empty_catalogue(language, domain)
    for sentence in sorted(found, key=lambda one: (one.text, one.context or "")):
        before = old.get(sentence.text, sentence.context)
        new.add(
            sentence.key,
            before.string if before and before.id == sentence.key else None,
            locations=[(name, 0) for name in sorted(found[sentence])],
            flags=before.flags if before else (),
            user_comments=before.user_comments if before else (),
            context=sentence.context,
        )
    return new


# Dates and names would make every run a change.
_UNSTABLE = (
    "POT-Creation",
    "PO-Revision",
    "Generated-By",
    "Last-Translator",
    "Language-Team",
    "Project",
    "Report",
)
_UNSTABLE_LINES = re.compile(rf'^"(?:{"|".join(_UNSTABLE)})[^\n]*\n', re.MULTILINE)


def po_text(catalogue: Catalog) -> str:
    file = io.BytesIO()
    catalogue.header_comment = "# See docs/translating.md."
    write_po(file, catalogue, width=100, include_lineno=False)
    return _UNSTABLE_LINES.sub("", file.getvalue().decode())


def mo_bytes(po: str, language: str) -> bytes:
    file = io.BytesIO()
    catalogue = read_po(io.BytesIO(po.encode()), locale=language)
    # The header is written anew by Babel, with the time of writing, unless it is told another.
    body = Catalog(locale=language, fuzzy=False, header_comment="")
    _set_plural(body, catalogue.num_plurals, catalogue.plural_expr)
    body.creation_date = body.revision_date = datetime(2000, 1, 1, tzinfo=UTC)
    for message in catalogue:
        if message.id:
            body.add(message.id, message.string, flags=message.flags, context=message.context)
    write_mo(file, body)
    return file.getvalue()


def script_text(catalogue: Catalog, language: str) -> str:
    """The module that the page of this language imports."""
    tags = plural_tags(language)
    messages: dict[str, object] = {}
    for message in catalogue:
        if not message.id or not is_whole(message):
            continue
        if isinstance(message.id, tuple | list):
            messages[message.id[1]] = dict(zip(tags, forms_of(message), strict=True))
        else:
            messages[message.id] = message.string
    words = json.dumps(messages, ensure_ascii=False, indent=0, sort_keys=True)
    tag = json.dumps(LOCALE_TAGS.get(language, language))
    return f"export const locale = {tag}\nexport const messages = {words}\n"


def is_whole(message: Message) -> bool:
    forms = forms_of(message)
    return bool(forms) and all(forms) and not message.fuzzy


def forms_of(message: Message) -> list[str]:
    """The translation, or each of its plural forms."""
    text = message.string
    return [text] if isinstance(text, str) else list(text or ())


# --- what may be wrong ----------------------------------------------------------------------------


def problems() -> list[str]:
    """One line for each thing that a reader would see or that is not written yet; [] is good."""
    found = gather()
    wrong = [f"{path}: a key must be a literal" for path in _without_literal()]
    for language in LANGUAGES:
        for domain, sentences in found.items():
            catalogue = read_catalogue(language, domain)
            wrong += _sentence_problems(language, domain, catalogue, sentences)
            wrong += _form_problems(language, domain, catalogue)
        wrong += [f"{path} is old" for path, new in outputs(language) if _differs(path, new)]
    return wrong


def _without_literal() -> Iterator[str]:
    for path in scripts():
        if JS_UNKNOWN.search(path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT).as_posix()


def _sentence_problems(
    language: str, domain: str, catalogue: Catalog, sentences: Found
) -> Iterator[str]:
    name = f"{language}/{domain}"
    known = {(str(one.id), one.context) for one in catalogue if one.id}
    wanted = {(str(one.key), one.context) for one in sentences}
    yield from (f"{name}: missing: {text}" for text, _ in sorted(wanted - known, key=str))
    yield from (f"{name}: no longer used: {text}" for text, _ in sorted(known - wanted, key=str))


def _form_problems(language: str, domain: str, catalogue: Catalog) -> Iterator[str]:
    tags = plural_tags(language)
    for message in catalogue:
        if not message.id:
            continue
        name = f"{language}/{domain}: {message.id}"
        if not is_whole(message):
            yield f"{name}: not translated"
        elif isinstance(message.id, str):
            if _holes(domain, message.id) != _holes(domain, str(message.string)):
                yield f"{name}: other placeholders"
        elif len(forms_of(message)) != len(tags):
            yield f"{name}: {len(tags)} plural forms are needed"
        else:
            yield from _plural_problems(name, domain, message, tags)


def _plural_problems(
    name: str, domain: str, message: Message, tags: Iterable[str]
) -> Iterator[str]:
    """The forms for none, one and two may leave a named number out: Arabic has one word for two."""
    wanted = _holes(domain, message.id[1])
    short = () if "%d" in wanted else ("zero", "one", "two")  # Python's % wants each %d
    for tag, form in zip(tags, forms_of(message), strict=True):
        missing = [hole for hole in wanted if hole not in _holes(domain, form)]
        extra = [hole for hole in _holes(domain, form) if hole not in wanted]
        if extra or len(missing) > (tag in short):
            yield f"{name}: other placeholders in the form {tag}"


def _holes(domain: str, text: str) -> list[str]:
    return sorted(PLACEHOLDERS[domain].findall(text))


def _differs(path: Path, new: bytes) -> bool:
    return not path.exists() or path.read_bytes() != new


# --- writing --------------------------------------------------------------------------------------


def outputs(language: str) -> Iterator[tuple[Path, bytes]]:
    """What the product reads, made from the .po files."""
    for domain in ("django",):  # the page reads a module, not djangojs.mo
        po = po_text(read_catalogue(language, domain))
        yield po_path(language, domain).with_suffix(".mo"), mo_bytes(po, language)
    script = script_text(read_catalogue(language, "djangojs"), language)
    path = ROOT / "static" / "js" / "catalogues" / f"{language}.js"
    yield path, script.encode()


def write(languages: Iterable[str]) -> None:
    found = gather()
    for language in languages:
        for domain, sentences in found.items():
            path = po_path(language, domain)
            path.parent.mkdir(parents=True, exist_ok=True)
            old = read_catalogue(language, domain)
            path.write_text(po_text(updated(old, language, domain, sentences)), encoding="utf-8")
        for path, content in outputs(language):
            path.write_bytes(content)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="write nothing, say what is wrong")
    parser.add_argument("--add", metavar="LANGUAGE", help="begin the catalogues of a language")
    options = parser.parse_args()
    if not options.check:
        write(sorted({*LANGUAGES, *([options.add] if options.add else [])}))
    wrong = problems()
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    if not settings.configured:
        settings.configure(USE_I18N=True)  # templatize reads little else
    sys.exit(main())
