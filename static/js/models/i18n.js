/**
 * The page's words in the reader's language.
 *
 * The English sentence is the key: a sentence that the catalogue lacks is shown in English. Names in
 * braces are filled in. A key is written out where it is used, never put together: it must be found by
 * the extraction (docs/contributing: adding a language).
 */

let catalogue = {} // English sentence → its translation, or an array of plural forms
let locale = "en"
let pluralOf = new Intl.PluralRules("en")

/** @param {object} options {locale, messages: {key: string | {one, few, …, other}}} */
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
