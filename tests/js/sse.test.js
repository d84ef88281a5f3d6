import assert from "node:assert/strict"
import { test } from "node:test"

import { MAX_EVENT_CHARS, SseError, SseParser } from "#js/models/sse.js"

import { bytes, randomFrom } from "./support.js"

function parse(pieces) {
  const events = []
  const retries = []
  const parser = new SseParser({ onEvent: (event) => events.push(event), onRetry: (ms) => retries.push(ms) })
  for (const piece of pieces) parser.feed(piece)
  return { events, retries }
}

const STREAM =
  "\ufeff: heartbeat\nretry: 750\n\nid: g_1:1\nevent: start\ndata: {\"a\":1}\n\n" +
  "event: delta\r\nid: g_1:2\r\ndata: {\"text\":\"नमस्ते 👨‍👩‍👧 \\r\\ndata: x\"}\r\n\r\n" +
  "event: notice\rdata: no id\r\r" +
  "data: two\ndata:lines\ndata:  kept space\n\n: end\n\n"

const EXPECTED = {
  retries: [750],
  events: [
    { id: "g_1:1", name: "start", data: '{"a":1}' },
    { id: "g_1:2", name: "delta", data: '{"text":"नमस्ते 👨‍👩‍👧 \\r\\ndata: x"}' },
    { id: null, name: "notice", data: "no id" },
    { id: null, name: "message", data: "two\nlines\n kept space" },
  ],
}

test("a stream reads the same whole, byte by byte, and cut in two at every place", () => {
  const whole = bytes(STREAM)
  assert.deepEqual(parse([whole]), EXPECTED)
  assert.deepEqual(parse([...whole].map((byte) => Uint8Array.of(byte))), EXPECTED)
  for (let cut = 0; cut <= whole.length; cut += 1) {
    assert.deepEqual(parse([whole.slice(0, cut), whole.slice(cut)]), EXPECTED, `cut at ${cut}`)
  }
})

test("a stream reads the same in random pieces", () => {
  const whole = bytes(STREAM)
  for (let seed = 0; seed < 300; seed += 1) {
    const random = randomFrom(seed)
    const pieces = []
    for (let at = 0; at < whole.length; ) {
      const size = Math.floor(random() * 12)
      pieces.push(whole.slice(at, at + size))
      at += size
    }
    assert.deepEqual(parse(pieces), EXPECTED, `seed ${seed}`)
  }
})

test("an event that the end of the stream cut off is not told", () => {
  assert.deepEqual(parse([bytes("data: whole\n\ndata: half\n")]).events.map((event) => event.data), ["whole"])
})

test("unknown fields, ids with NUL and a retry that is no number are passed over", () => {
  const { events, retries } = parse([bytes("retry: 1e3\nretry: -5\nid: a\0b\ncolour: red\ndata\n\n")])
  assert.deepEqual(events, [{ id: null, name: "message", data: "" }])
  assert.deepEqual(retries, [])
})

test("an id belongs to its own event only", () => {
  const { events } = parse([bytes("id: g_1:5\ndata: a\n\ndata: b\n\n")])
  assert.deepEqual(events.map((event) => event.id), ["g_1:5", null])
})

test("a line, or an event of many lines, may not grow without end", () => {
  const mebibyte = bytes("x".repeat(1024 * 1024))
  const line = [bytes("data: "), ...Array(MAX_EVENT_CHARS / mebibyte.length + 1).fill(mebibyte)]
  assert.throws(() => parse(line), SseError)
  const lines = Array(MAX_EVENT_CHARS / mebibyte.length + 1).fill([bytes("data: "), mebibyte, bytes("\n")]).flat()
  assert.throws(() => parse(lines), SseError)
})
