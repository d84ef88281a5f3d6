/** Choosing what the server takes for the active branch, and reading it. */

// Pages read to find where another version joins the thread shown: nearly 2,000 messages.
const MAX_PAGES = 20

/** @returns {Promise<boolean>} false for a reply that is still being written: it cannot be chosen yet */
export async function choose(api, conversation, message) {
  try {
    await api.setActiveLeaf(conversation, message)
    return true
  } catch (error) {
    if (error.code === "run_live") return false
    throw error
  }
}

/**
 * Make `message` the active leaf if that is still one of `replaceable`: nobody's choice. The revision makes sure that
 * nothing newer is overruled. Never rejects: the view stays as it is, only another device would open something else.
 */
export async function chooseInsteadOf(api, conversation, message, replaceable) {
  try {
    const { active_leaf: leaf, etag } = await api.conversation(conversation, { limit: 1 })
    if (replaceable.has(leaf)) await api.setActiveLeaf(conversation, message, { etag })
  } catch {
    // Told by nothing but the next look.
  }
}

/**
 * The active branch below `parent` (null: all of it), over as many pages as that takes.
 * @returns {Promise<{detail: object, rows: object[], joined: boolean}>} not `joined`: it is further up than MAX_PAGES
 */
export async function readUpTo(api, conversation, parent) {
  const detail = await api.conversation(conversation)
  let page = detail
  let rows = detail.messages
  const has = () => rows.some((row) => row.id === parent)
  for (let pages = 1; pages < MAX_PAGES && !has() && page.has_more_before; pages += 1) {
    page = await api.conversation(conversation, { before: page.before })
    rows = [...page.messages, ...rows]
  }
  const at = rows.findIndex((row) => row.id === parent)
  const joined = parent === null ? !page.has_more_before : at >= 0
  return { detail, rows: rows.slice(at + 1), joined }
}
