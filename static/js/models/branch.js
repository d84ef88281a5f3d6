/**
 * How the thread on this page stands to the one the server has. Pure.
 *
 * The view moves only where the reader loses nothing by it: it grows at its end. Whatever else happened on
 * another device is told, and shown when the reader asks.
 */
import { besideSibling } from "#js/models/versions.js"

/**
 * @param {object[]} shown the messages of the page; only the last may be live
 * @param {object[]} rows the end of the server's active branch, oldest first
 * @returns {{relation: "same"|"longer"|"elsewhere"|"wait", rest: object[]}}
 *   `longer`: `rest` comes below what is shown. `wait`: the live reply has just been stored, its stream will say so.
 */
export function compare(shown, rows) {
  const live = shown.at(-1)?.live ? shown.at(-1) : null
  const end = (live ? shown.at(-2) : shown.at(-1)) ?? null
  const at = end ? rows.findIndex((row) => row.id === end.id) : -1
  if (end && at < 0) return { relation: "elsewhere", rest: [] }
  const rest = rows.slice(at + 1)
  if (!rest.length) return { relation: "same", rest }
  if (!live) return { relation: "longer", rest }
  return { relation: rest[0].id === live.id ? "wait" : "elsewhere", rest: [] }
}

/**
 * Where the two part: the first shown message that the server's branch does not have, and what stands in its
 * place there. Null where they do not part, or part above what is known.
 */
export function parting(shown, rows) {
  const known = new Set(rows.map((row) => row.id)).add(null) // all begin at the root
  const own = shown.find((message) => known.has(message.parentId) && !known.has(message.id))
  if (!own) return null
  const instead = rows.find((row) => row.parent_id === own.parentId) ?? null
  return instead || own.parentId ? { own, instead } : null
}

/** The live run to show below a message: the newest. Ids rise with time. */
export function newestRunBelow(runs, parent) {
  const below = [...runs].filter((run) => run.parent_id === parent)
  return below.reduce((newest, run) => (newest && newest.reply_id > run.reply_id ? newest : run), null)
}

/**
 * Take what the server says of the messages shown: rows of saved ones, places of live ones.
 * @param {Map<string, object>} liveRuns by reply id
 * @returns {object[]} the messages that changed by it
 */
export function takeRows(messages, rows, liveRuns) {
  const byId = new Map(rows.map((row) => [row.id, row]))
  return messages.filter((message) => {
    const row = !message.live && byId.get(message.id)
    return row ? message.takeRow(row) : message.live && takePlace(message, liveRuns.get(message.id))
  })
}

function takePlace(message, run) {
  if (!run || JSON.stringify(run.versions) === JSON.stringify(message.versions)) return false
  message.versions = run.versions ?? null
  return true
}

/**
 * The server has not spoken of the version shown where the two part: what stands beside it there tells how many there are.
 * @returns {object|null} the message whose place is known better now
 */
export function takeParting(shown, rows, runs) {
  const { own = null, instead = null } = parting(shown, rows) ?? {}
  const run = own && newestRunBelow(runs, own.parentId)
  const sibling = instead ?? (run && { id: run.reply_id, versions: run.versions })
  if (!own || !sibling) return null
  own.versions = besideSibling(own, sibling)
  return own
}
