// Shows a page again whenever the server has other news of it. Without it pages reload themselves.
"use strict";
(() => {
  const live = document.getElementById("live");
  const clock = document.getElementById("clock");
  if (!live || !live.dataset.news || !window.EventSource) return;
  const source = new EventSource(live.dataset.news);

  const show = (html) => {
    const details = new Map([...live.querySelectorAll("details[id]")].map((d) => [d.id, d.open]));
    const scrolled = [...live.querySelectorAll(".scroll")].map((part) => part.scrollLeft);
    const focus = document.activeElement;
    const href = live.contains(focus) ? focus.getAttribute("href") : null;
    live.innerHTML = html;
    for (const [id, open] of details) {
      const found = document.getElementById(id);
      if (found) found.open = open;
    }
    [...live.querySelectorAll(".scroll")].forEach((part, i) => { part.scrollLeft = scrolled[i] || 0; });
    if (href) {
      const same = [...live.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === href);
      if (same) same.focus({ preventScroll: true });
    }
    const title = live.querySelector("h1");
    if (title) document.title = "Rekindle: " + title.textContent;
  };

  // Who types or selects text is not disturbed; the next news come soon.
  const busy = () =>
    (document.activeElement && document.activeElement.tagName === "INPUT" &&
      live.contains(document.activeElement)) || String(window.getSelection()) !== "";

  let waiting = null;
  let silence = null;
  const heard = () => {
    clearTimeout(silence);
    silence = null;
    clock.classList.remove("lost");
  };
  source.addEventListener("page", (event) => {
    heard();
    if (busy()) waiting = event.data;
    else { waiting = null; show(event.data); }
  });
  source.addEventListener("time", (event) => {
    heard();
    clock.textContent = event.data;
    if (waiting !== null && !busy()) { show(waiting); waiting = null; }
  });
  // A stream that only came to its end is there again in three seconds.
  source.onerror = () => {
    if (silence === null) {
      silence = setTimeout(() => {
        clock.textContent = "no answer, tries again";
        clock.classList.add("lost");
      }, 5000);
    }
    if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 10000);
  };
})();
