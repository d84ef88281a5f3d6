/**
 * Versions of a message, `{index, count, previous, next}` as the API has them, or null where there is one.
 * Pure. What is worked out here stands until the server has been asked again.
 */
import { number, t } from "#js/models/i18n.js"

const ONLY = { index: 1, count: 1, previous: null, next: null }

/** The place of a new version beside `message`: the newest. Its left neighbour is known if `message` is the newest. */
export function newestBeside(message) {
  const { count, next } = message.versions ?? ONLY
  return { index: count + 1, count: count + 1, previous: next ? null : message.id, next: null }
}

/**
 * What a newer sibling tells of `message`, which the server did not speak of: how many there are, and who
 * comes next. (Versions are only ever added at the end.)
 * @param {{id: string, versions: object|null}} sibling
 */
export function besideSibling(message, sibling) {
  const own = message.versions ?? ONLY
  const other = sibling.versions
  if (!other || other.count <= own.count) return message.versions
  return { ...own, count: other.count, next: own.next ?? nextOf(own, sibling) }
}

function nextOf(own, { id, versions }) {
  return versions.index === own.index + 2 ? versions.previous : id
}

/** "2/3", and the same for ears. */
export function placeText({ index, count }) {
  return `${number(index)}/${number(count)}`
}

export function placeWords({ index, count }) {
  return t("Version {index} of {count}", { index: number(index), count: number(count) })
}
