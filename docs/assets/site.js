// What the theme leaves out for readers without a mouse: a name for the search, keys for what scrolls sideways, and
// names of their own for the parts of the navigation.
const mend = () => {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search")
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach((part) => (part.tabIndex = 0))
  document.querySelectorAll(".md-nav .md-nav, .md-code__nav").forEach((part, number) => {
    part.removeAttribute("aria-labelledby")
    part.setAttribute("aria-label", `Part ${number + 1}`)
  })
}
document.addEventListener("DOMContentLoaded", () => {
  mend()
  new MutationObserver(mend).observe(document.body, { childList: true, subtree: true })
})
