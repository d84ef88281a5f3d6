/**
 * How the thread on this page stands to the one the server has. Pure.
 *
 * The view moves only where the reader loses nothing by it: it grows at its end. Whatever else happened on
 * another device is told, and shown when the reader asks.
 */

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
