/** The languages that are coloured, by the names that code blocks give them; each is a file of highlight.js. */

// file: further names
const NAMES = {
  bash: "sh shell zsh console shellsession shell-session terminal",
  c: "h",
  cpp: "c++ cc cxx hpp h++",
  csharp: "cs c#",
  css: "",
  dart: "",
  diff: "patch",
  dockerfile: "docker containerfile",
  elixir: "ex exs",
  go: "golang",
  graphql: "gql",
  haskell: "hs",
  ini: "toml cfg conf properties env dotenv",
  java: "",
  javascript: "js jsx mjs cjs node",
  json: "json5 jsonc jsonl",
  julia: "jl",
  kotlin: "kt kts",
  latex: "tex",
  lua: "",
  makefile: "make mk",
  markdown: "md",
  nginx: "",
  perl: "pl",
  php: "",
  powershell: "ps1 pwsh ps",
  protobuf: "proto",
  python: "py python3 pycon ipython",
  r: "",
  ruby: "rb",
  rust: "rs",
  scala: "",
  scss: "sass",
  sql: "postgresql postgres mysql sqlite plsql psql",
  swift: "",
  typescript: "ts tsx mts",
  xml: "html xhtml svg rss vue svelte htm",
  yaml: "yml",
}

/** What a language holds of others. */
const WITHIN = { xml: ["javascript", "css"], php: ["xml", "javascript", "css"], markdown: ["xml"] }

const FILES = new Map(
  Object.entries(NAMES).flatMap(([file, names]) => [file, ...names.split(" ").filter(Boolean)].map((name) => [name, file])),
)

/** @returns {string | null} the file for a code block's own word for its language */
export function languageFile(name) {
  return FILES.get(name.toLowerCase()) ?? null
}

/** @returns {string[]} this file and those that it needs */
export function filesOf(file) {
  return [...(WITHIN[file] ?? []), file]
}

export const LANGUAGE_FILES = Object.keys(NAMES)
