import assert from "node:assert/strict"
import { test } from "node:test"

import { ariaKeys, capsOf, isApple, shortcut, shortcutFor, shortcutGroups, SHORTCUTS } from "#js/models/shortcuts.js"

const NONE = { ctrlKey: false, metaKey: false, shiftKey: false, altKey: false, isComposing: false, repeat: false, keyCode: 0, code: "" }
const key = (name, more = {}) => ({ ...NONE, key: name, ...more })
const found = (event, state = {}) => shortcutFor(event, { apple: false, place: "page", single: true, ...state })?.id ?? null

test("Control elsewhere, Command on Apple's machines", () => {
  const control = key("k", { ctrlKey: true })
  const command = key("k", { metaKey: true })
  assert.deepEqual([found(control), found(command)], ["palette", null])
  assert.deepEqual([found(control, { apple: true }), found(command, { apple: true })], [null, "palette"])
  assert.equal(found(key("k", { ctrlKey: true, metaKey: true })), null)
  assert.deepEqual(["MacIntel", "iPhone", "macOS", "Linux x86_64", "Win32", undefined].map(isApple), [true, true, true, false, false, false])
})

test("no more keys than were asked for", () => {
  assert.equal(found(key("O", { ctrlKey: true, shiftKey: true })), "new")
  assert.equal(found(key("o", { ctrlKey: true })), null, "the browser's: open a file")
  assert.equal(found(key("k", { ctrlKey: true, altKey: true })), null, "AltGr writes letters")
  assert.equal(found(key("k", { ctrlKey: true, repeat: true })), null)
  assert.equal(found(key("k", { ctrlKey: true, isComposing: true })), null)
  assert.equal(found(key("Escape", { keyCode: 229 })), null, "it ends a composition")
})

test("keyboards of other letters: by the key's place", () => {
  assert.equal(found(key("ن", { ctrlKey: true, code: "KeyK" })), "palette")
  assert.equal(found(key("л", { ctrlKey: true, code: "KeyK" })), "palette")
  assert.equal(found(key("t", { ctrlKey: true, code: "KeyK" })), null, "Dvorak: what is written counts")
  assert.equal(found(key("؟", { shiftKey: true })), "help")
  assert.equal(found(key("/", { shiftKey: true })), "composer", "German: Shift and 7")
})

test("single keys hold outside fields, and can be switched off", () => {
  for (const [sign, id] of [["/", "composer"], ["?", "help"]]) {
    assert.equal(found(key(sign)), id)
    for (const place of ["field", "composer", "empty"]) assert.equal(found(key(sign), { place }), null, place)
    assert.equal(found(key(sign), { single: false }), null)
  }
  assert.equal(found(key("k", { ctrlKey: true }), { place: "composer", single: false }), "palette")
})

test("the arrow edits the last message from an empty composer only", () => {
  const places = ["empty", "composer", "field", "page"]
  assert.deepEqual(places.map((place) => found(key("ArrowUp"), { place })), ["edit", null, null, null])
  assert.equal(found(key("ArrowUp", { shiftKey: true }), { place: "empty" }), null)
})

test("no two shortcuts want the same keys, and each stands in the help sheet", () => {
  const keys = SHORTCUTS.map((one) => ariaKeys(one, false))
  assert.equal(new Set(keys).size, keys.length)
  const listed = shortcutGroups().flatMap((group) => group.shortcuts)
  assert.deepEqual(new Set(listed), new Set(SHORTCUTS))
  for (const one of listed) assert.ok(one.label())
})

test("keys are drawn as the keyboard has them, and said in words", () => {
  const caps = (id, apple) => capsOf(shortcut(id), apple).map(({ cap }) => cap).join(" ")
  assert.deepEqual([caps("new", true), caps("new", false)], ["⌘ ⇧ O", "Ctrl Shift O"])
  assert.deepEqual([caps("stop", false), caps("edit", true), caps("help", false)], ["Esc", "↑", "?"])
  assert.equal(capsOf(shortcut("new"), true).map(({ said }) => said).join(" "), "Command Shift O")
  assert.deepEqual([ariaKeys(shortcut("new"), true), ariaKeys(shortcut("palette"), false)], ["Meta+Shift+O", "Control+K"])
})
