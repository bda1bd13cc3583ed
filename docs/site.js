// The theme lets wide tables scroll; those who use the keyboard can scroll what has the focus.
const focusable = () => document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach(each => { each.tabIndex = 0 })
new MutationObserver(focusable).observe(document.documentElement, { childList: true, subtree: true })
