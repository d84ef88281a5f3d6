import assert from "node:assert/strict"
import { test } from "node:test"

import { ConversationList } from "#js/models/conversation_list.js"

/** The later in the alphabet, the older. */
function item(id, more = {}) {
  const minute = 59 - id.charCodeAt(0) + "a".charCodeAt(0)
  return { id, title: id, active_leaf: "m_1", last_activity: `2026-11-29T10:${minute}:00Z`, ...more }
}

const moved = (id) => item(id, { last_activity: "2026-11-29T11:00:00Z" })

function listOf(...pages) {
  const asked = []
  const found = new Map()
  const api = {
    listConversations: async (options) => {
      asked.push(options?.cursor ?? null)
      const page = pages.shift()
      if (page instanceof Error) throw page
      return page
    },
    conversation: async (id) => {
      asked.push(id)
      if (!found.has(id)) throw Object.assign(new Error("gone"), { status: 404 })
      return found.get(id)
    },
    rename: async (id, title) => {
      if (title === "bad") throw new Error("refused")
      return item(id, { title: title.trim() })
    },
  }
  return { list: new ConversationList({ api }), asked, found }
}

const ids = (list) => list.items.map((one) => one.id)

test("pages follow each other, and each conversation is there once", async () => {
  const { list, asked } = listOf({ items: [item("a"), item("b")], next_cursor: "2" }, { items: [item("b"), item("c")], next_cursor: null })
  await list.refresh()
  await list.more()
  await list.more()
  assert.deepEqual(ids(list), ["a", "b", "c"])
  assert.deepEqual(asked, [null, "2"])
})

test("a page that failed says so, and is asked for again; two who ask at once get the same one", async () => {
  const { list, asked } = listOf({ items: [item("a")], next_cursor: "2" }, new Error("off"), { items: [item("b")], next_cursor: null })
  const told = []
  await list.refresh()
  list.on(() => told.push([list.loadingMore, list.moreFailed]))
  await list.more()
  await Promise.all([list.more(), list.more()])
  assert.deepEqual(told, [[true, false], [false, true], [true, false], [false, false]])
  assert.deepEqual([ids(list), asked], [["a", "b"], [null, "2", "2"]])
})

test("a list that could not be loaded is looked for again at the reader's wish", async () => {
  const { list } = listOf(new Error("off"), { items: [item("a")], next_cursor: null })
  const told = []
  await list.refresh()
  list.on(() => told.push(list.status))
  await list.retry()
  assert.deepEqual([told, ids(list)], [["loading", "ready"], ["a"]])
})

test("a refresh moves what was active to the top and keeps the pages below", async () => {
  const { list } = listOf(
    { items: [item("a"), item("b")], next_cursor: "2" },
    { items: [item("c")], next_cursor: null },
    { items: [moved("c"), item("a")], next_cursor: "2" },
  )
  await list.refresh()
  await list.more()
  await list.refresh()
  assert.deepEqual(ids(list), ["c", "a", "b"])
  assert.equal(list.nextCursor, null)
})

test("more than a page changed meanwhile: the list begins anew, and nothing is left out", async () => {
  const at = (id, minute) => item(id, { last_activity: `2026-11-29T11:${minute}:00Z` })
  const { list, asked } = listOf(
    { items: [item("a"), item("b")], next_cursor: "2" },
    { items: [item("c")], next_cursor: null },
    { items: [at("x", 30), at("y", 20)], next_cursor: "new" },
    { items: [at("z", 10), item("a"), item("b"), item("c")], next_cursor: null },
  )
  await list.refresh()
  await list.more()
  await list.refresh()
  assert.deepEqual([ids(list), list.nextCursor], [["x", "y"], "new"])
  await list.more()
  assert.deepEqual([ids(list), asked], [["x", "y", "z", "a", "b", "c"], [null, "2", null, "new"]])
})

test("a page that was under way while the list began anew is not put below it", async () => {
  let answer
  const late = new Promise((resolve) => (answer = resolve))
  const { list } = listOf({ items: [item("b")], next_cursor: "2" }, late, { items: [moved("x")], next_cursor: "new" })
  await list.refresh()
  const reading = list.more()
  await list.refresh()
  answer({ items: [item("c")], next_cursor: "3" })
  await reading
  assert.deepEqual([ids(list), list.nextCursor], [["x"], "new"])
})

test("a list that has become short has no more pages", async () => {
  const { list } = listOf({ items: [item("a"), item("b")], next_cursor: "2" }, { items: [item("b")], next_cursor: null })
  await list.refresh()
  await list.refresh()
  assert.deepEqual([ids(list), list.nextCursor], [["b"], null])
})

test("a failure keeps what is there", async () => {
  const { list } = listOf(new Error("off"), { items: [item("a")], next_cursor: "2" }, new Error("off"), new Error("off"))
  await list.refresh()
  assert.equal(list.status, "failed")
  await list.refresh()
  assert.equal(list.status, "ready")
  await list.refresh()
  await list.more()
  assert.deepEqual([ids(list), list.status, list.nextCursor], [["a"], "ready", "2"])
})

test("what should be in the first page and is not, is gone", async () => {
  const { list } = listOf({ items: [item("a"), item("b"), item("c")], next_cursor: "2" }, { items: [item("d")], next_cursor: null }, { items: [item("a"), item("c")], next_cursor: "2" }, { items: [item("a")], next_cursor: null })
  await list.refresh()
  await list.more()
  await list.refresh()
  assert.deepEqual(ids(list), ["a", "c", "d"])
  await list.refresh()
  assert.deepEqual(ids(list), ["a"])
})

test("what changed further down is read by itself, and stands where it belongs", async () => {
  const first = Array.from({ length: 30 }, (_, index) => item(String.fromCharCode(97 + index)))
  const pages = [{ items: first, next_cursor: "2" }, { items: [item("\u0080"), item("\u0082")], next_cursor: null }, { items: first, next_cursor: "2" }, { items: first, next_cursor: "2" }]
  const { list, asked, found } = listOf(...pages)
  await list.refresh()
  await list.more()
  found.set("\u0082", item("\u0082", { title: "Renamed" }))
  found.set("\u0081", item("\u0081", { title: "Restored" }))
  await list.refresh(["\u0082", "\u0081", "a"])
  assert.deepEqual(list.items.slice(30).map(({ title }) => title), ["\u0080", "Restored", "Renamed"])
  assert.ok(!asked.includes("a"), "the first page has it")
  found.clear()
  await list.refresh(["\u0080"])
  assert.deepEqual(ids(list).slice(30), ["\u0081", "\u0082"])
})

test("below what is loaded nothing is put", async () => {
  const { list } = listOf({ items: [item("a")], next_cursor: "2" })
  await list.refresh()
  list.put(item("x"))
  assert.deepEqual(ids(list), ["a"])
})

test("what was deleted stays away until a hint names it", async () => {
  const page = { items: [item("a"), item("b")], next_cursor: null }
  const { list } = listOf(page, page, page)
  await list.refresh()
  list.take("b")
  await list.refresh()
  assert.deepEqual(ids(list), ["a"])
  await list.refresh(["b"])
  assert.deepEqual(ids(list), ["a", "b"])
})

test("a rename shows what the server made of it; a refused one changes nothing", async () => {
  const { list } = listOf({ items: [item("a")], next_cursor: null })
  await list.refresh()
  assert.equal(await list.rename("a", " New "), "New")
  assert.equal(list.items[0].title, "New")
  await assert.rejects(list.rename("a", "bad"))
  assert.equal(list.items[0].title, "New")
})
