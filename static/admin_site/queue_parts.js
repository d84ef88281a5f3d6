// Words for the figures of the queues page, and the shapes of its charts. Pure: no document here.

const STEPS = {
  home: "as asked",
  other_region: "another region",
  shorter: "shorter answer",
  smaller: "smaller model",
  wait: "longer wait",
  refused: "refused",
}
const GAP_S = 45

/** A step of the ladder, or a reason of a refusal, as people say it. */
export const stepWords = (step) => STEPS[step] ?? step.replaceAll("_", " ")

/** "340 ms", "2.4 s", "3 min"; null: nobody knows. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "unknown"
  if (ms <= 0) return "none"
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 9_950) return `${(ms / 1_000).toFixed(1)} s`
  if (ms < 119_500) return `${Math.round(ms / 1_000)} s`
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 3_600_000)} h`
}

/** How long ago, in seconds. */
export const ago = (seconds) => (seconds < 1 ? "just now" : `${duration(seconds * 1_000)} ago`)

/** "1,234", "12.3 k", "4.6 M". */
export function amount(number) {
  if (number === null || number === undefined) return "unknown"
  if (number >= 999_950) return `${(number / 1_000_000).toFixed(1)} M`
  if (number >= 9_995) return `${(number / 1_000).toFixed(1)} k`
  return (number >= 100 ? Math.round(number) : Math.round(number * 10) / 10).toLocaleString("en")
}

/** "3 as asked, 1 smaller model", the most first; empty where there is nothing. */
export function tally(counts) {
  const pairs = Object.entries(counts).sort(([, a], [, b]) => b - a)
  return pairs.map(([name, number]) => `${amount(number)} ${stepWords(name)}`).join(", ")
}

/** What is wrong with a pool, the worst first. */
export function poolMarks(pool) {
  const healthy = pool.replicas.filter((one) => replicaMark(one).kind === "good").length
  const marks = []
  const isTold = !pool.queue || pool.queue.is_paused === pool.is_paused
  if (pool.is_paused) marks.push({ kind: "warn", words: isTold ? "paused" : "pausing" })
  else if (!isTold) marks.push({ kind: "warn", words: "resuming" })
  if (!pool.replicas.length) marks.push({ kind: "bad", words: "no replica" })
  else if (!healthy) marks.push({ kind: "bad", words: "no healthy replica" })
  if (pool.queue && !pool.queue.built) marks.push({ kind: "bad", words: "queue is being rebuilt" })
  if (pool.queue?.chores_paused) marks.push({ kind: "plain", words: "chores wait" })
  if (!marks.length) marks.push(pool.queue ? { kind: "good", words: "open" } : { kind: "plain", words: "unknown" })
  return marks
}

/** How a replica is, in a word or two. */
export function replicaMark(replica) {
  if (!replica.is_fresh) return { kind: "bad", words: "not heard of" }
  if (replica.is_draining) return { kind: "warn", words: replica.running ? "draining" : "drained" }
  return replica.healthy ? { kind: "good", words: "healthy" } : { kind: "bad", words: "not healthy" }
}

/** The largest value of some lines, and a round number above it for the chart's top. */
export function scale(lines) {
  let most = 0
  for (const line of lines) for (const [, value] of line) if (value !== null && value > most) most = value
  if (most <= 0) return { most: 0, top: 1 }
  const unit = 10 ** Math.floor(Math.log10(most))
  const top = [1, 2, 5, 10].map((step) => step * unit).find((step) => step >= most)
  return { most, top }
}

/** The `d` of an SVG path for points [time, value]: from `since` to `until` over the width. A value
    of null, or a longer time without a sample, is a gap. */
export function path(points, { since, until, top, width, height }) {
  let d = ""
  let last = null
  for (const [time, value] of points) {
    if (value === null || time < since || time > until) {
      last = null
      continue
    }
    const x = ((time - since) / (until - since)) * width
    const y = height - (Math.min(value, top) / top) * height
    d += `${last !== null && time - last <= GAP_S ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`
    last = time
  }
  return d
}

/** Of points [time, value] the newest value that is known. */
export function newest(points) {
  for (let at = points.length - 1; at >= 0; at -= 1) if (points[at][1] !== null) return points[at][1]
  return null
}

/** The hour as rows of a table, one for each `every` seconds: [time, …the value of each line]. */
export function rows(lines, every = 300) {
  const found = new Map()
  lines.forEach((line, column) => {
    for (const [time, value] of line) {
      const slot = Math.floor(time / every) * every
      if (!found.has(slot)) found.set(slot, lines.map(() => null))
      if (value !== null) found.get(slot)[column] = Math.max(found.get(slot)[column] ?? 0, value)
    }
  })
  return [...found].sort(([a], [b]) => b - a).map(([time, values]) => [time, ...values])
}
