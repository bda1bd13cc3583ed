// Wide tables and pictures scroll; those who use the keyboard can scroll what has the focus.
const scrolled = [".md-typeset__scrollwrap", '.md-typeset p:has(> img[src*="pictures/"])'].map(each => `${each}:not([tabindex])`).join()
const focusable = () => document.querySelectorAll(scrolled).forEach(each => { each.tabIndex = 0 })
new MutationObserver(focusable).observe(document.documentElement, { childList: true, subtree: true })
