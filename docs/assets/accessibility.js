// Mends what the theme leaves to screen readers and keyboards: links without text, unnamed groups of buttons, and tables and
// code that only a mouse can scroll. The theme adds some of these elements after the page has loaded.
function mend() {
  for (const link of document.querySelectorAll('a[id^="__codelineno"][href]')) link.removeAttribute("href");
  document.querySelectorAll(".md-code__nav").forEach((group, index) => {
    group.setAttribute("aria-label", `Code example ${index + 1}`);
  });
  for (const area of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) area.tabIndex = 0;
  for (const choice of document.querySelectorAll("input.md-option[aria-hidden]")) choice.tabIndex = -1;
}

let isPlanned = false;
new MutationObserver(() => {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(() => {
    isPlanned = false;
    mend();
  });
}).observe(document.body, { childList: true, subtree: true });
mend();
