/** `<run>:<seq>`, the id of an event and the value of `Last-Event-ID`. */

// Only these may come after a jump in seq (a takeover or a lost log); any other jump is a lost event.
const MAY_JUMP = new Set(["snapshot", "retract", "done"])

/** @returns {{run: string, seq: number} | null} null for an event without a (valid) id */
export function parseCursor(id) {
  const match = /^(g_[0-9a-f]+):(\d{1,15})$/.exec(id ?? "")
  return match ? { run: match[1], seq: Number(match[2]) } : null
}

/** What to do with an event of `seq` for someone who has seen everything up to `seen`. */
export function judge(name, seq, seen) {
  if (seq <= seen) return "seen"
  return seq === seen + 1 || MAY_JUMP.has(name) ? "next" : "gap"
}
