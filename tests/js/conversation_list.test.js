import assert from "node:assert/strict"
import { test } from "node:test"

import { byDay, ConversationList } from "#js/models/conversation_list.js"

function item(id) {
  return { id, title: id, last_activity: "2026-11-29T10:00:00Z" }
}

function listOf(...pages) {
  const asked = []
  const api = {
    listConversations: async (options) => {
      asked.push(options?.cursor ?? null)
      const page = pages.shift()
      if (page instanceof Error) throw page
      return page
    },
  }
  return { list: new ConversationList({ api }), asked }
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

test("a refresh moves what was active to the top and keeps the pages below", async () => {
  const { list } = listOf(
    { items: [item("a"), item("b")], next_cursor: "2" },
    { items: [item("c")], next_cursor: null },
    { items: [item("c"), item("a")], next_cursor: "2" },
  )
  await list.refresh()
  await list.more()
  await list.refresh()
  assert.deepEqual(ids(list), ["c", "a", "b"])
  assert.equal(list.nextCursor, null)
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

test("days are the reader's own", () => {
  const now = new Date(2026, 10, 29, 12)
  const at = (daysAgo, hour) => ({ id: `${daysAgo}`, last_activity: new Date(2026, 10, 29 - daysAgo, hour).toISOString() })
  const groups = byDay([at(0, 11), at(0, 0), at(1, 23), at(2, 5), at(6, 1), at(7, 23), at(300, 1)], now)
  assert.deepEqual(groups.map((group) => [group.label, group.items.length]), [["Today", 2], ["Yesterday", 1], ["This week", 2], ["Earlier", 2]])
})
