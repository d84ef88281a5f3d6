export const locale = "en"
export const messages = {}
