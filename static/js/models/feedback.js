/** What the reader thinks of a reply: shown at once, saved meanwhile, taken back where that fails. */

/**
 * @param {object} conversation tells `changed` and `state`; gets `failure`
 * @returns {Promise<boolean>} whether it was saved
 */
export async function rate(conversation, reply, rating, reason) {
  const before = reply.feedback
  const turn = (reply.rating = {}) // of two quick ones the later stands
  reply.feedback = rating && { rating, reason }
  conversation.failure = null
  conversation.emit("changed", { message: reply })
  const error = await conversation.api.rate(reply.id, { rating, reason }).then(() => null, (failed) => failed)
  if (reply.rating === turn) settle(conversation, reply, error, before)
  return !error
}

function settle(conversation, reply, error, before) {
  reply.rating = null
  if (error) {
    reply.feedback = before
    conversation.failure = { what: "feedback", error }
    conversation.emit("changed", { message: reply })
  }
  conversation.emit("state")
}
