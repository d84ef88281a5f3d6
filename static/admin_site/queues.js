// The queues page: asks for the figures while somebody looks, and shows how old they are.
// What stays is kept, so that a refresh takes away neither focus nor what was opened.

const REFRESH_MS = 2_000
const HISTORY_MS = 10_000
const ANSWER_MS = 5_000
const STALE_MS = 7_000

const root = document.getElementById("queues")
const state = root.querySelector(".queues-state")
const list = root.querySelector(".queues-pools")
const [parts, { charts }] = await Promise.all([import(root.dataset.parts), import(root.dataset.charts)])
const drawing = charts(parts)

let timer = null
let asking = false
let heardAt = null // this browser's clock, performance.now()
let historyAt = -Infinity
let problem = ""
let ended = false

// --- asking ---------------------------------------------------------------------------------------

async function refresh() {
  clearTimeout(timer)
  if (document.hidden || asking || ended) return
  asking = true
  const withHistory = performance.now() - historyAt >= HISTORY_MS
  try {
    const answer = await fetch(address(withHistory), { signal: AbortSignal.timeout(ANSWER_MS), redirect: "manual" })
    if (answer.type === "opaqueredirect" || answer.status === 403) {
      ended = true
      problem = "You are signed out, or may not see this any more. Load the page again."
    } else if (!answer.ok) {
      problem = `The server answered ${answer.status}.`
    } else {
      show(await answer.json())
      heardAt = performance.now()
      if (withHistory) historyAt = heardAt
      problem = ""
    }
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof DOMException)) throw error
    problem = "The server cannot be reached."
  } finally {
    asking = false
    showState()
    timer = setTimeout(refresh, REFRESH_MS)
  }
}

function address(withHistory) {
  const url = new URL(root.dataset.figures, location.href)
  if (withHistory) url.searchParams.set("history", "1")
  for (const open of list.querySelectorAll(".pool-runs[open]")) url.searchParams.append("runs", open.dataset.pool)
  return url
}

document.addEventListener("visibilitychange", refresh)

function showState() {
  const age = heardAt === null ? null : performance.now() - heardAt
  const stale = age === null ? problem !== "" : problem !== "" || age > STALE_MS
  root.toggleAttribute("data-stale", stale)
  const old = age === null ? "" : ` These figures are ${parts.duration(age)} old.`
  const words = stale ? `${problem || "Waiting for an answer."}${old}` : away ? AWAY : ""
  // A reader is told of what has changed, not of every refresh.
  if (state.dataset.words === words) return
  if (stale !== state.classList.contains("is-bad") || !stale) setText(state, words || "Live: refreshed every 2 seconds.")
  else setText(state, words)
  state.dataset.words = words
  state.classList.toggle("is-bad", stale || away)
}

const AWAY = "Redis is away: how long the queues are cannot be read. Pools and replicas are as PostgreSQL knows them."
let away = false

// --- showing --------------------------------------------------------------------------------------

function show(told) {
  away = !told.redis
  if (!told.pools.length) {
    list.replaceChildren(el("p", { class: "queues-empty" }, "There is no pool yet. ", link(root.dataset.pools, "Add one"), " and start a worker for it."))
    return
  }
  list.querySelector(".queues-empty")?.remove()
  keep(list, told.pools, (pool) => pool.slug, poolSection, (section, pool) => showPool(section, pool, told))
}

function poolSection(pool) {
  const runs = el("details", { class: "pool-runs", "data-pool": pool.slug }, el("summary", {}, "Runs that wait and run"), el("div", { class: "pool-runs-lists" }))
  runs.addEventListener("toggle", refresh)
  return el(
    "section",
    { class: "pool", "aria-label": `Pool ${pool.slug}` },
    el("header", { class: "pool-head" }, el("h2", {}, pool.slug), el("span", { class: "pool-where" }), el("span", { class: "marks" }), el("span", { class: "pool-verbs" })),
    el("dl", { class: "facts" }),
    el("div", { class: "charts" }, el("p", { class: "quiet" }, "The charts begin when a worker has taken a few samples.")),
    tableOf("plans", "Plans", ["Plan", "Weight", "Waiting", "A newcomer waits", "Last step", "Admitted", "Refused"]),
    tableOf("replicas", "Replicas", ["Replica", "Health", "At work", "Load", "Heard of", ""]),
    runs,
  )
}

function showPool(section, pool, { may, currency, at_ms: atMs }) {
  const titles = new Map(pool.plans.map((plan) => [plan.plan, plan.title]))
  setText(section.querySelector(".pool-where"), `${pool.model} · ${pool.region}`)
  keep(section.querySelector(".marks"), parts.poolMarks(pool), (one) => one.words, badge)
  const verb = pool.is_paused ? "resume" : "pause"
  keep(section.querySelector(".pool-verbs"), may.pool ? [verb] : [], (one) => one, (one) => link(`${root.dataset.root}pools/${pool.slug}/${one}/`, one === "pause" ? "Pause" : "Resume"))
  keep(section.querySelector(".facts"), facts(pool, currency), (one) => one[0], fact, (node, [, words]) => setText(node.lastChild, words))
  rows(section, "plans", pool.plans, (plan) => plan.plan, (plan) => planCells(plan, may, pool.queue))
  rows(section, "replicas", pool.replicas, (one) => one.name, (one) => replicaCells(one, may))
  if (pool.history?.waiting.length > 1) drawing.draw(keptOpen(section.querySelector(".charts")), pool.history, titles, atMs / 1_000)
  if (pool.runs) showRuns(section.querySelector(".pool-runs-lists"), pool.runs, titles, may)
}

/** The box, which opens its table again where somebody had opened it before it is drawn anew. */
function keptOpen(box) {
  const wasOpen = box.querySelector(".chart-table")?.open
  const hadFocus = box.contains(document.activeElement)
  queueMicrotask(() => {
    const table = box.querySelector(".chart-table")
    if (wasOpen && table) table.open = true
    if (hadFocus) table?.querySelector("summary").focus({ preventScroll: true })
  })
  return box
}

function facts(pool, currency) {
  const { queue, totals } = pool
  const since = [
    ["Ended in all", parts.amount(totals.ended)],
    ["Refused in all", parts.amount(totals.refused)],
    ["Tokens in all", `${parts.amount(totals.prompt_tokens)} read, ${parts.amount(totals.output_tokens)} written`],
    ["Cost in all", `${totals.cost} ${currency}`],
  ]
  if (!queue) return [["Waiting", "unknown"], ["At work", "unknown"], ["Tokens a second", "unknown"]]
  const burst = queue.paid_burst ? ` and ${queue.paid_burst} for paid plans` : ""
  const chores = queue.chores_waiting ? `, ${queue.chores_waiting} of them chores` : ""
  const most = queue.most_tokens_per_s === null ? "" : ` of about ${parts.amount(queue.most_tokens_per_s)}`
  return [
    ["Waiting", `${parts.amount(queue.waiting)}${chores}`],
    ["At work", `${queue.at_work} of ${queue.slots} slots${burst}`],
    ["Tokens a second", `${parts.amount(queue.tokens_per_s)}${most}`],
    ...since,
  ]
}

function planCells(plan, may, queue) {
  const weight = may.plan ? link(`${root.dataset.root}plans/${plan.plan}/weigh/`, plan.weight, `Change the weight of ${plan.title}, now ${plan.weight}`) : `${plan.weight}`
  const last = plan.last === null ? "–" : `${parts.stepWords(plan.last)}, ${parts.ago(plan.last_age_s)}`
  return [
    plan.is_paid ? `${plan.title} (paid)` : plan.title,
    plan.plan ? weight : `${plan.weight}`,
    queue ? `${plan.waiting}` : "unknown",
    parts.duration(plan.wait_ms),
    last,
    parts.tally(plan.admitted) || "–",
    parts.tally(plan.refused) || "–",
  ]
}

function replicaCells(one, may) {
  const verb = one.is_draining ? ["undrain", "Take runs again"] : ["drain", "Drain"]
  const atWork = one.at_work === null ? one.running : one.at_work
  const going = one.wanted_pool ? `wanted in ${one.wanted_pool}. ` : ""
  return [
    one.name,
    badge(parts.replicaMark(one)),
    `${atWork} of ${one.slots}${one.paid_burst ? ` + ${one.paid_burst}` : ""}`,
    `${going}${one.detail}` || "–",
    parts.ago(one.heartbeat_age_s),
    may.replica ? link(`${root.dataset.root}replicas/${one.name}/${verb[0]}/`, verb[1], `${verb[1]}: ${one.name}`) : "",
  ]
}

function showRuns(box, runs, titles, may) {
  if (!box.firstChild) {
    box.append(
      tableOf("waiting", "Waiting, the next ones first", ["Run", "Plan", "Waits for", "Position", "Predicted wait", ""]),
      tableOf("running", "At work, the longest first", ["Run", "Plan", "Since", "Replica", ""]),
    )
  }
  const plan = (run) => titles.get(run.plan) ?? (run.plan || "–")
  const verbs = (run, ...names) =>
    may.run ? el("span", { class: "verbs" }, ...names.map(([name, words]) => link(`${root.dataset.root}runs/${run.id}/${name}/`, words, `${words} ${run.id}`))) : ""
  rows(box, "waiting", runs.waiting, (run) => run.id, (run) => [
    run.id,
    plan(run),
    parts.duration(run.age_s * 1_000),
    run.position === null ? "–" : `${run.position}`,
    parts.duration(run.wait_ms),
    verbs(run, ["move", "Move"], ["stop", "Stop"]),
  ])
  rows(box, "running", runs.running, (run) => run.id, (run) => [
    run.id,
    plan(run),
    parts.ago(run.age_s),
    run.replica || "–",
    verbs(run, ["stop", "Stop"]),
  ])
}

// --- elements -------------------------------------------------------------------------------------

function tableOf(name, caption, columns) {
  return el(
    "table",
    { class: `figures figures-${name}`, role: "table" },
    el("caption", {}, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...columns.map((words) => el("th", { scope: "col", role: "columnheader" }, words || el("span", { class: "spoken" }, "What can be done"))))),
    el("tbody", { role: "rowgroup" }),
  )
}

function rows(box, name, items, key, cells) {
  const table = box.querySelector(`.figures-${name}`)
  const heads = [...table.tHead.rows[0].cells].map((cell) => (cell.firstElementChild ? "" : cell.textContent))
  table.classList.toggle("is-empty", !items.length)
  keep(table.tBodies[0], items, key, () => el("tr", { role: "row" }, ...heads.map((words) => el("td", { role: "cell", "data-label": words }))), (row, item) => {
    cells(item).forEach((content, at) => setContent(row.cells[at], content))
  })
}

function setContent(cell, content) {
  if (typeof content === "string") setText(cell, content)
  // The same as before: what stands there keeps its focus.
  else if (cell.innerHTML !== content.outerHTML) cell.replaceChildren(content)
}

function setText(node, words) {
  if (node.textContent !== words) node.textContent = words
}

/** One child for each item, in order; those that were there already stay the same elements. */
function keep(box, items, key, make, update = () => {}) {
  const known = new Map([...box.children].map((child) => [child.dataset.key, child]))
  items.forEach((item, at) => {
    const name = String(key(item))
    const child = known.get(name) ?? make(item)
    known.delete(name)
    child.dataset.key = name
    if (box.children[at] !== child) box.insertBefore(child, box.children[at] ?? null)
    update(child, item)
  })
  for (const child of known.values()) child.remove()
}

function fact([words]) {
  return el("div", {}, el("dt", {}, words), el("dd", {}))
}

function badge({ kind, words }) {
  return el("span", { class: `mark mark-${kind}` }, words)
}

function link(href, words, label = null) {
  return el("a", { href, ...(label ? { "aria-label": label } : {}) }, `${words}`)
}

function el(name, attributes, ...children) {
  const node = document.createElement(name)
  for (const [attribute, value] of Object.entries(attributes)) node.setAttribute(attribute, value)
  node.append(...children)
  return node
}

refresh()
setInterval(showState, 1_000)
