/**
 * The page's words in the reader's language.
 *
 * The English sentence is the key: a sentence that the catalogue lacks is shown in English. Names in
 * braces are filled in. A key is written out where it is used, never put together: it must be found by
 * the extraction (docs/translating.md).
 *
 * `#js/catalogue` is the module of the page's language: the import map says which. It is imported here, so
 * that the words are there before any other module asks for one.
 */
import * as words from "#js/catalogue"

let catalogue = words.messages // English sentence → its translation, or {one, few, …, other}
let locale = words.locale
let pluralOf = new Intl.PluralRules(locale)

/** For tests; no argument is English. @param {object} options {locale, messages: {key: string | {one, few, …, other}}} */
export function setLanguage({ locale: wanted = "en", messages = {} } = {}) {
  locale = wanted
  catalogue = messages
  pluralOf = new Intl.PluralRules(wanted)
}

/** The BCP 47 tag for numbers, dates and sorting. */
export function language() {
  return locale
}

/** @param {string} text the English sentence, with {names} */
export function t(text, values = {}) {
  const found = catalogue[text]
  return fill(typeof found === "string" ? found : text, values)
}

/**
 * One of the plural forms.
 * @param {string} one the English sentence for one
 * @param {string} other the English sentence otherwise; the key of the translation
 */
export function plural(one, other, count, values = {}) {
  const forms = catalogue[other]
  const english = count === 1 ? one : other
  const text = typeof forms === "object" ? (forms[pluralOf.select(count)] ?? forms.other) : english
  return fill(text ?? english, { count: number(count), ...values })
}

/** A number as the reader's language writes it. */
export function number(value, options = {}) {
  return new Intl.NumberFormat(locale, options).format(value)
}

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole))
}
