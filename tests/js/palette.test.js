import assert from "node:assert/strict"
import { test } from "node:test"

import { commandsFor } from "#js/models/commands.js"
import { Emitter } from "#js/models/emitter.js"
import { folded, MAX_FOUND, MAX_PAGES, MAX_RECENT, Palette, REST_MS, search } from "#js/models/palette.js"

import { FakeTimers } from "./support.js"

const ALL = { conversation: true, answer: true, live: true }

function item(id, title) {
  return { id, title, active_leaf: "m_1", last_activity: "2026-11-29T10:00:00Z" }
}

/** A list with further pages; `more` resolves when the test says so. */
class List extends Emitter {
  constructor(items, pages = []) {
    super()
    Object.assign(this, { items, pages, current: null, moreFailed: false, asked: 0 })
  }

  get nextCursor() {
    return this.pages.length ? "next" : null
  }

  async more() {
    this.asked += 1
    this.emit("changed") // a page is under way
    const page = this.pages[0]
    this.moreFailed = page === "broken"
    if (this.moreFailed) return
    this.pages.shift()
    this.items = [...this.items, ...page]
    this.emit("changed")
  }
}

function paletteOf(list, now = ALL) {
  const palette = new Palette({ list, commands: () => commandsFor(now), timers: new FakeTimers() })
  palette.open()
  return palette
}

/** Nothing more is typed for a while. */
function rest(palette) {
  assert.deepEqual(palette.timers.pending, [REST_MS])
  palette.timers.fireShortest()
}

const shown = (palette) => palette.groups.map((group) => [group.key, group.options.map((option) => option.title)])
const settled = () => new Promise((resolve) => setImmediate(resolve))

test("before anything is typed: what was last spoken in, without the open one, and the commands", () => {
  const list = new List(Array.from({ length: 10 }, (_, index) => item(`c_${index}`, `Title ${index}`)))
  list.current = "c_0"
  const palette = paletteOf(list)
  const [recent, commands] = palette.groups
  assert.deepEqual(recent.options.map((option) => option.conversation), ["c_1", "c_2", "c_3", "c_4", "c_5", "c_6"])
  assert.equal(recent.options.length, MAX_RECENT)
  assert.equal(palette.active, recent.options[0].id)
  assert.ok(commands.options.some((option) => option.command === "new"))
})

test("only commands that can be done are offered", () => {
  const ids = (now) => commandsFor({ ...ALL, ...now }).map((command) => command.id)
  assert.deepEqual(ids({ conversation: false, answer: false, live: false }), ["new", "theme-system", "theme-light", "theme-dark", "settings", "help"])
  assert.ok(ids({}).includes("stop"))
  assert.ok(!ids({ live: false }).includes("stop"))
})

test("every word must be there; what begins so comes first", () => {
  const items = ["A trip to Goa", "Goa trip on a budget", "Budget of the cargoaircraft trip", "Unrelated"].map((title) => item(title, title))
  const titles = search(items, "goa TRIP", (one) => one.title).map((one) => one.title)
  assert.deepEqual(titles, ["Goa trip on a budget", "A trip to Goa", "Budget of the cargoaircraft trip"])
  assert.deepEqual(search(items, "goa", (one) => one.title, { starts: true }).length, 2)
})

test("accents and case do not matter, the vowels of Hindi do", () => {
  assert.equal(folded("Éclair à la CRÈME "), "eclair a la creme")
  assert.equal(folded("مُحَمَّد"), folded("محمد"))
  assert.notEqual(folded("कि"), folded("का"))
  assert.equal(search([item("a", "दिल्ली की यात्रा")], "दिल्ली", (one) => one.title).length, 1)
})

test("older conversations are looked through page by page until enough is found", async () => {
  const pages = [[item("b", "nothing")], [item("c", "Goa again")], [item("d", "old")]]
  const palette = paletteOf(new List([item("a", "Goa")], pages))
  palette.type("goa")
  assert.equal(palette.status, "Looking through older conversations")
  rest(palette)
  await settled()
  assert.deepEqual(shown(palette), [["found", ["Goa", "Goa again"]]])
  assert.equal(palette.status, "2 results")
  const many = new List(Array.from({ length: MAX_FOUND }, (_, index) => item(`m${index}`, "Goa")), [[item("z", "Goa")]])
  paletteOf(many).type("goa")
  assert.equal(many.asked, 0, "enough is there")
})

test("after many pages the reader is asked, and a failure is told", async () => {
  const list = new List([], Array.from({ length: MAX_PAGES + 2 }, (_, index) => [item(`p${index}`, "no")]))
  const palette = paletteOf(list)
  palette.type("goa")
  rest(palette)
  await settled()
  assert.equal(list.asked, MAX_PAGES)
  assert.deepEqual(shown(palette), [["look", ["Look through still older conversations"]]])
  assert.equal(palette.status, "Nothing was found.")
  list.pages[1] = "broken"
  palette.lookOn()
  await settled()
  assert.deepEqual(shown(palette), [["look", ["Older conversations could not be loaded. Try again"]]])
  list.pages[0] = [item("y", "Goa, at last")]
  palette.lookOn()
  await settled()
  assert.deepEqual(shown(palette), [["found", ["Goa, at last"]]])
})

test("a closed palette looks no further", async () => {
  const list = new List([], [[item("a", "no")], [item("b", "no")], [item("c", "no")]])
  const palette = paletteOf(list)
  palette.type("goa")
  rest(palette)
  palette.close()
  await settled()
  assert.equal(list.asked, 1)
})

test("older pages are read when the typing rests, never for one letter, and so many for one opening", async () => {
  const list = new List([], Array.from({ length: 2 * MAX_PAGES }, (_, index) => [item(`p${index}`, "no")]))
  const palette = paletteOf(list)
  palette.type("g")
  assert.deepEqual([palette.timers.pending, palette.looking], [[], false])
  for (const query of ["go", "goa", "goa t"]) palette.type(query)
  assert.equal(list.asked, 0)
  rest(palette)
  await settled()
  assert.equal(list.asked, MAX_PAGES)
  palette.type("goa tr")
  assert.deepEqual([palette.timers.pending, palette.looking], [[], false])
  assert.deepEqual(shown(palette), [["look", ["Look through still older conversations"]]])
  palette.close()
  palette.open()
  palette.type("goa")
  rest(palette)
  await settled()
  assert.equal(list.asked, 2 * MAX_PAGES)
})

test("what is typed is told once, and so is each page", async () => {
  const list = new List([item("a", "Goa")], [[item("b", "Goa too")], [item("c", "no")]])
  const palette = paletteOf(list)
  const told = []
  palette.on(() => told.push(palette.options.length))
  palette.type("goa")
  assert.deepEqual(told, [1])
  rest(palette)
  await settled()
  assert.deepEqual(told, [1, 2, 2, 2], "two pages, and that it was all")
})

test("the arrows go around, and the choice holds while results come in", async () => {
  const list = new List([item("a", "Goa one"), item("b", "Goa two")])
  const palette = paletteOf(list, { ...ALL, conversation: false, answer: false, live: false })
  palette.type("goa")
  palette.move(-1)
  assert.equal(palette.chosen.conversation, "b")
  list.items = [item("n", "Goa new"), ...list.items]
  list.emit("changed")
  assert.equal(palette.chosen.conversation, "b")
  palette.move(1)
  assert.equal(palette.chosen.conversation, "n")
  palette.moveToEnd("last")
  assert.equal(palette.chosen.conversation, "b")
  palette.type("nothing like this")
  assert.equal(palette.chosen, null)
  palette.move(1)
  assert.equal(palette.chosen, null)
})
