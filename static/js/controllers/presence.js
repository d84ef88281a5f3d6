/** When to look again: the line is back, or the page is seen after having been hidden. */

// Shorter absences (another tab for a moment) leave the connection as it is.
const AWAY_MS = 10_000

/** @param {object} hooks {onLine(online), onReturn(), onGlance()} */
export function watchPresence({ onLine, onReturn, onGlance }) {
  let hiddenAt = null
  addEventListener("online", () => onLine(true))
  addEventListener("offline", () => onLine(false))
  addEventListener("pageshow", (event) => event.persisted && onReturn())
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) hiddenAt = Date.now()
    else if (hiddenAt !== null && Date.now() - hiddenAt > AWAY_MS) onReturn()
    else onGlance()
  })
  addEventListener("focus", () => onGlance())
}
