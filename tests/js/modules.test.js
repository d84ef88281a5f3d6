// What a linter would say of the page's modules; the project has none for JavaScript.
import assert from "node:assert/strict"
import { readdirSync, readFileSync } from "node:fs"
import test from "node:test"

const ROOT = new URL("../../static/js/", import.meta.url)
const MODULES = readdirSync(ROOT, { recursive: true })
  .filter((name) => name.endsWith(".js") && !name.startsWith("catalogues"))
  .map((name) => ({ name, source: readFileSync(new URL(name, ROOT), "utf8") }))

const IMPORT = /^import (.+) from "[^"]+"$/gm
const STATEMENT = /^(?:export )?(?:const|let) \w+ = (?:.*[{[(]\n(?:.*\n)*?[}\])]|.*)/gm

function importedNames(source) {
  const lists = [...source.matchAll(IMPORT)].map((found) => found[1])
  return lists.flatMap((list) => list.replace(/[{}]/g, "").split(",")).map((name) => name.trim().split(/ as /).at(-1)).filter(Boolean)
}

test("no module imports what it does not use", () => {
  for (const { name, source } of MODULES) {
    const body = source.replace(IMPORT, "")
    for (const imported of importedNames(source)) assert.match(body, new RegExp(`\\b${imported}\\b`), `${name} imports ${imported}`)
  }
})

test("no module is too long to be read at once", () => {
  for (const { name, source } of MODULES) assert.ok(source.split("\n").length <= 600, name)
})

test("words are looked up when they are shown, not when a module is read", () => {
  for (const { name, source } of MODULES) {
    for (const [statement] of source.matchAll(STATEMENT)) {
      const early = statement.split("\n").find((line) => /\b(?:t|plural)\("/.test(line) && !line.includes("=>"))
      assert.equal(early, undefined, name)
    }
  }
})
