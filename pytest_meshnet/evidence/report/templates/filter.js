(() => {
  "use strict";
  const bar = document.getElementById("filter");
  const words = document.getElementById("filter-text");
  const told = document.getElementById("filter-told");
  const boxes = [...bar.querySelectorAll("input[type=checkbox]")];
  const entries = [...document.querySelectorAll("#results [data-status]")];
  const groups = [...document.querySelectorAll("#results > details")];
  const texts = new Map();
  const content = (entry) => {
    if (!texts.has(entry)) texts.set(entry, entry.textContent.toLowerCase());
    return texts.get(entry);
  };
  const apply = () => {
    const wanted = new Set(boxes.filter((one) => one.checked).map((one) => one.value));
    const query = words.value.trim().toLowerCase();
    let shown = 0;
    for (const entry of entries) {
      entry.hidden = !wanted.has(entry.dataset.status) || !content(entry).includes(query);
      shown += entry.hidden ? 0 : 1;
    }
    const narrowed = query !== "" || wanted.size < boxes.length;
    for (const group of groups) {
      group.hidden = !group.querySelector("[data-status]:not([hidden])");
      if (narrowed && !group.hidden) group.open = true;
    }
    told.textContent = `${shown} of ${entries.length} requirements shown`;
  };
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    if (target) target.scrollIntoView();
  };
  bar.addEventListener("input", apply);
  window.addEventListener("hashchange", reveal);
  bar.hidden = false;
  apply();
  if (location.hash) reveal();
})();
