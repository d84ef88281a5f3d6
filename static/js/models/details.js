/** How an answer was made, as lines of a small table. Pure. */
import { language, number, t } from "#js/models/i18n.js"

/**
 * @param {object} known the reply as the page has it: {model, usage}
 * @param {object|null} run as `GET /v1/runs/{g}` tells it; null where that is not known (yet)
 * @param {(slug: string) => string} modelTitle
 * @returns {[string, string][]} label and value
 */
export function detailRows(known, run, modelTitle) {
  const usage = run?.usage ?? known.usage
  const model = run?.model ?? known.model
  const rows = [[t("Model"), model && (modelTitle(model) || model)], ...timeRows(run), ...tokenRows(usage)]
  return rows.filter(([, value]) => value)
}

function timeRows(run) {
  if (!run?.finished_at) return []
  return [
    [t("Written"), momentText(run.finished_at)],
    [t("First words after"), spanText(run.queued_at, run.first_text_at)],
    [t("Finished after"), spanText(run.queued_at, run.finished_at)],
  ]
}

function tokenRows(usage) {
  if (!usage) return []
  return [
    [t("Tokens written"), count(usage.output_tokens)],
    [t("Tokens read"), count(usage.prompt_tokens)],
    [t("Of those, kept from before"), usage.cached_tokens ? count(usage.cached_tokens) : ""],
  ]
}

function count(tokens) {
  return Number.isFinite(tokens) ? number(tokens) : ""
}

function momentText(moment) {
  return new Intl.DateTimeFormat(language(), { dateStyle: "medium", timeStyle: "short" }).format(new Date(moment))
}

/** Whole seconds where there are many; a minute and more in minutes too. */
export function spanText(from, to) {
  const seconds = (Date.parse(to) - Date.parse(from)) / 1000
  if (!(seconds >= 0)) return ""
  if (seconds < 59.5) return unit(seconds, "second", seconds < 10 ? 1 : 0)
  const whole = Math.round(seconds)
  return `${unit(Math.floor(whole / 60), "minute", 0)} ${unit(whole % 60, "second", 0)}`
}

function unit(value, name, digits) {
  return number(value, { style: "unit", unit: name, unitDisplay: "short", maximumFractionDigits: digits })
}
