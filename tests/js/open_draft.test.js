import assert from "node:assert/strict"
import { test } from "node:test"

import { OpenDraft } from "#js/models/open_draft.js"
import { Drafts } from "#js/models/storage.js"

import { MemoryStorage } from "./support.js"

/** Tabs of one browser; what one of them writes, the others are told. */
function tabs(count, conversation = null) {
  const storage = new MemoryStorage()
  const drafts = new Drafts({ storage, user: "u" })
  return [...Array(count)].map(() => {
    const draft = new OpenDraft({ drafts })
    draft.open(conversation)
    return { draft, drafts, tell: (id = conversation) => draft.changedElsewhere(drafts.keyOf(id)) }
  })
}

test("a tab that lies idle does not put its old draft over a newer one", () => {
  const [idle, busy] = tabs(2)
  busy.draft.edit("typed here")
  busy.draft.save()
  idle.draft.save() // it is closed
  assert.equal(busy.drafts.get(null), "typed here")
  idle.draft.open("c_1") // or goes elsewhere
  assert.equal(busy.drafts.get(null), "typed here")
})

test("an idle tab shows what another one has typed; one that is typed in keeps its own", () => {
  const [first, second] = tabs(2, "c_1")
  first.draft.edit("from the first")
  first.draft.save()
  assert.equal(second.tell(), "from the first")
  assert.equal(second.tell(), null, "that is shown already")
  second.draft.edit("from the second")
  assert.equal(second.tell(), null)
  second.draft.save()
  assert.equal(first.tell("c_2"), null, "of another conversation")
  assert.equal(first.tell(), "from the second")
  first.draft.clear()
  assert.equal(second.tell(), "")
})

test("what is typed while a new conversation gets its id is the draft of that one alone", () => {
  const [tab] = tabs(1)
  tab.draft.edit("next")
  tab.draft.save()
  tab.draft.edit("next thought")
  assert.equal(tab.draft.rename("c_1"), "next thought")
  assert.deepEqual([tab.drafts.get(null), tab.drafts.get("c_1")], ["", "next thought"])
})

test("another tab's draft of a new conversation stays where it is", () => {
  const [sent, typed] = tabs(2)
  sent.draft.clear()
  typed.draft.edit("begun in the other tab")
  typed.draft.save()
  assert.equal(sent.tell(), "begun in the other tab")
  assert.equal(sent.draft.rename("c_1"), "")
  assert.deepEqual([sent.drafts.get(null), sent.drafts.get("c_1")], ["begun in the other tab", ""])
})

test("what stood in the field before is typed text; what cannot be kept is tried again", () => {
  const [tab] = tabs(1)
  assert.equal(tab.draft.open("c_1", "early"), "early")
  tab.draft.save()
  assert.equal(tab.drafts.get("c_1"), "early")
  const full = new OpenDraft({ drafts: new Drafts({ storage: null, user: "u" }) })
  full.edit("only here")
  full.save()
  assert.equal(full.again(), null, "nothing takes its place")
  assert.equal(full.open(null), "only here")
  assert.equal(full.open("c_1"), "")
})
