/**
 * Which rows of a long list are in the page. A list that is not long is there as a whole, so that the
 * browser's own search and a screen reader find all of it; of a long one only what is near the reader.
 */

// Some hundred rows cost nothing that anybody notices.
export const WHOLE_UP_TO = 200
// Rows beside what is seen: a fast flick and a few presses of Tab meet no hole.
export const BESIDE = 30
// A row with the keyboard's focus stays while the reader scrolls about, but not for ever.
export const MAX_PINNED = 300

/**
 * The groups as rows, each with the distance of its top from the list's.
 * @param {{rowPx: number, headPx: number}} sizes
 * @returns {{rows: object[], heightPx: number}} rows: {key, top, group, item|null: the group's heading}
 */
export function layOut(groups, { rowPx, headPx }) {
  const rows = []
  let top = 0
  for (const group of groups) {
    rows.push({ key: `day:${group.key}`, top, group, item: null })
    top += headPx
    for (const item of group.items) {
      rows.push({ key: item.id, top, group, item })
      top += rowPx
    }
  }
  return { rows, heightPx: top }
}

/**
 * @param {{top: number, height: number, pinned?: string|null}} seen
 * @returns {{from: number, to: number, beforePx: number, afterPx: number}} rows `from` up to, not with, `to`
 */
export function windowOf({ rows, heightPx }, { top, height, pinned = null }) {
  if (rows.length <= WHOLE_UP_TO) return { from: 0, to: rows.length, beforePx: 0, afterPx: 0 }
  const first = rowAt(rows, top)
  const last = rowAt(rows, top + height)
  const { from, to } = withPinned(rows, pinned, {
    from: Math.max(0, first - BESIDE),
    to: Math.min(rows.length, last + 1 + BESIDE),
  })
  return { from, to, beforePx: rows[from].top, afterPx: heightPx - (rows[to]?.top ?? heightPx) }
}

function withPinned(rows, pinned, { from, to }) {
  const at = pinned === null ? -1 : rows.findIndex((row) => row.key === pinned)
  if (at < 0 || at < from - MAX_PINNED || at >= to + MAX_PINNED) return { from, to }
  return { from: Math.min(from, at), to: Math.max(to, at + 1) }
}

/** The last row that begins at `px` or above it. */
export function rowAt(rows, px) {
  let [low, high] = [0, rows.length - 1]
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if (rows[middle].top <= px) low = middle
    else high = middle - 1
  }
  return Math.max(0, low)
}

/**
 * Where to scroll to after a change, so that what was read stays where it was. What moved itself (it was
 * spoken in) is no place to hold on to.
 * @returns {number} px, for a list that was scrolled to `top`
 */
export function keptTop(before, after, top) {
  if (top <= 0 || !before.rows.length) return top
  const places = new Map(after.rows.map((row) => [row.key, row]))
  const first = rowAt(before.rows, top)
  for (const row of before.rows.slice(first, first + 2 * BESIDE)) {
    const now = row.item && places.get(row.key)
    if (now?.item && now.item.last_activity === row.item.last_activity) return top + now.top - row.top
  }
  return top
}
