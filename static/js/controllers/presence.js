/** When to look again: the line is back or another one, or the page is seen after having been hidden or asleep. */
import { ClockJump } from "#js/models/clock_jump.js"

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
  watchLine(onReturn)
  // A page that is hidden sleeps often, and looks when it is seen.
  new ClockJump({ onJump: () => document.hidden || onReturn() }).start()
}

/** From Wi-Fi to mobile, say: the old connection is dead, though the browser may not know it yet. */
function watchLine(onReturn) {
  const line = navigator.connection
  let before = line?.type
  line?.addEventListener?.("change", () => {
    if (line.type !== before) onReturn()
    before = line.type
  })
}
