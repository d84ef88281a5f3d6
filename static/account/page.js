/** The settings pages work without this; it shows times where the reader is, and the look as it is chosen. */

/** A moment in the reader's own zone: "14:05" today, else with its day; and how far off it is. */
export function whenText(moment, now, locale, zone) {
  const options = { timeStyle: "short", timeZone: zone }
  const day = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeZone: zone })
  const today = day.format(moment) === day.format(now)
  const time = new Intl.DateTimeFormat(locale, today ? options : { ...options, dateStyle: "medium" })
  return `${time.format(moment)} (${awayText(moment - now, locale)})`
}

function awayText(milliseconds, locale) {
  const minutes = Math.round(milliseconds / 60_000)
  const relative = new Intl.RelativeTimeFormat(locale, { numeric: "always" })
  if (Math.abs(minutes) < 1) return relative.format(Math.round(milliseconds / 1000), "second")
  if (Math.abs(minutes) < 90) return relative.format(minutes, "minute")
  if (Math.abs(minutes) < 36 * 60) return relative.format(Math.round(minutes / 60), "hour")
  return relative.format(Math.round(minutes / 1440), "day")
}

function showTimes() {
  // The digits that the server writes in all the page's languages.
  const locale = `${document.documentElement.lang || "en"}-u-nu-latn`
  for (const element of document.querySelectorAll("time[datetime]")) {
    element.textContent = whenText(new Date(element.dateTime), new Date(), locale)
  }
}

/** The colours change at once; they are kept by "Save" alone. */
function previewTheme() {
  document.querySelector("[data-look]")?.addEventListener("change", ({ target }) => {
    if (target.name === "theme") document.documentElement.dataset.theme = target.value
  })
}

/** Who chooses a default model means it: the model remembered in this browser no longer counts. */
function forgetOlderChoice() {
  const form = document.querySelector("[data-forget]")
  form?.addEventListener("submit", () => {
    try {
      localStorage.removeItem(form.dataset.forget)
    } catch {
      // Switched off: then nothing is remembered.
    }
  })
}

if (typeof document === "object") {
  showTimes()
  previewTheme()
  forgetOlderChoice()
}
