/** Is what a finger did a swipe to the side? */

const MIN_PX = 64
const MAX_MS = 600
// There the browser's own gesture goes back a page.
const EDGE_PX = 24

/**
 * @param {{x: number, y: number, ms: number}} start @param {{x: number, y: number, ms: number}} end
 * @param {number} width of the window
 * @returns {"left"|"right"|null}
 */
export function swipeOf(start, end, width) {
  const across = end.x - start.x
  const isLevel = Math.abs(end.y - start.y) < Math.abs(across) / 2
  const atEdge = start.x < EDGE_PX || start.x > width - EDGE_PX
  if (Math.abs(across) < MIN_PX || !isLevel || atEdge || end.ms - start.ms > MAX_MS) return null
  return across > 0 ? "right" : "left"
}
