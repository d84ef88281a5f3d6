/** Conversations by the reader's own days: today, yesterday, the week before, then month by month. */
import { language, t } from "#js/models/i18n.js"

/** @returns {{key: string, label: string, items: object[]}[]} in the order of the list */
export function byDay(items, now = new Date()) {
  const days = daysOf(now)
  const groups = new Map()
  for (const item of items) {
    const time = new Date(item.last_activity)
    const key = keyOf(time, days)
    // By key and not by neighbour: no two groups of one name, whatever order a clock that was wrong has made.
    if (!groups.has(key)) groups.set(key, { key, label: labelOf(key, time, now), items: [] })
    groups.get(key).items.push(item)
  }
  return [...groups.values()]
}

/** Until the groups have other names. */
export function untilMidnight(now = new Date()) {
  return daysAgo(now, -1).getTime() - now.getTime()
}

function daysOf(now) {
  return { today: daysAgo(now, 0), yesterday: daysAgo(now, 1), week: daysAgo(now, 7) }
}

/** By the calendar, not by hours: a day may have 23 or 25. */
function daysAgo(now, days) {
  return new Date(now.getFullYear(), now.getMonth(), now.getDate() - days)
}

function keyOf(time, { today, yesterday, week }) {
  if (time >= today) return "today"
  if (time >= yesterday) return "yesterday"
  if (time >= week) return "week"
  return `${time.getFullYear()}-${time.getMonth() + 1}`
}

function labelOf(key, time, now) {
  if (key === "today") return t("Today")
  if (key === "yesterday") return t("Yesterday")
  if (key === "week") return t("Previous 7 days")
  const year = time.getFullYear() === now.getFullYear() ? undefined : "numeric"
  return new Intl.DateTimeFormat(language(), { month: "long", year }).format(time)
}
